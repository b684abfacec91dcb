"""Losses of classification: log loss, with one raw prediction for two classes and one per class for more, and the exponential loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dtrees.ensemble.objective.loss import BaseLoss, Floats, OneOutput, Target, kernels


@dataclass(frozen=True)
class BinaryLogLoss(OneOutput):
    """Log loss of two classes; the raw prediction is the log odds of class 1."""

    def initial(self, target: Target, weight: Floats | None) -> Floats:
        """Return the log odds of the weighted class shares, shape (1,)."""
        shares = _class_shares(target, weight, 2)
        return kernels().log(shares[1:] / shares[:1])

    def gradients(self, target: Target, opened: Floats, output: int, g: Floats, h: Floats) -> None:
        """Write g = p - [target is 1] and h = p (1 - p)."""
        kernels().binary_gradients(target, opened[output], g, h)

    def pointwise(self, target: Target, raw: Floats, out: Floats) -> None:
        """Write each row's negative log likelihood."""
        kernels().binary_loss(target, raw[0], out)

    def predictions(self, raw: Floats) -> Floats:
        """Return class probabilities, shape (n, 2), from raw predictions of shape (n, 1)."""
        from dtrees.split.compile.kernels import plain

        found = np.empty((raw.shape[0], 2))
        kernels().binary_probabilities(plain(raw[:, 0]), found)
        return found

    def raw_predictions(self, predicted: Floats) -> Floats:
        """Return the log odds of class 1, shape (n, 1), from probabilities of shape (n, 2)."""
        second = _inside(predicted[:, 1:])
        return kernels().log(second / (1.0 - second))


@dataclass(frozen=True)
class MultinomialLogLoss(BaseLoss):
    """Log loss of K classes; raw predictions are log probabilities up to a constant for each row (softmax).

    The hessian of one output is K / (K - 1) times its diagonal element p (1 - p): the K trees of a round change all outputs at once, and
    with this factor a round is the symmetric step of Friedman (2001), equation 33, and for K = 2 the step of the binary loss.
    """

    n_outputs: int
    constant_hessian: bool = False

    def initial(self, target: Target, weight: Floats | None) -> Floats:
        """Return the logs of the weighted class shares, shape (K,)."""
        return kernels().log(_class_shares(target, weight, self.n_outputs))

    def open_round(self, raw: Floats, opened: Floats) -> None:
        """Write the class probabilities, up to a factor for each row."""
        kernels().exponentials(raw, opened)

    def gradients(self, target: Target, opened: Floats, output: int, g: Floats, h: Floats) -> None:
        """Write g = p - [target is ``output``] and h = K / (K - 1) p (1 - p)."""
        kernels().multinomial_gradients(target, opened, output, g, h)

    def pointwise(self, target: Target, raw: Floats, out: Floats) -> None:
        """Write each row's negative log likelihood."""
        kernels().multinomial_loss(target, raw, out)

    def predictions(self, raw: Floats) -> Floats:
        """Return class probabilities, shape (n, K), from raw predictions of shape (n, K)."""
        from dtrees.split.compile.kernels import plain

        found = np.empty(raw.shape)
        kernels().probabilities(plain(raw), found)
        return found

    def raw_predictions(self, predicted: Floats) -> Floats:
        """Return logarithms of probabilities minus their mean over classes, shape (n, K)."""
        logarithms = kernels().log(_inside(predicted))
        return np.asarray(logarithms - logarithms.mean(axis=1, keepdims=True))


def log_loss_for(n_classes: int) -> BinaryLogLoss | MultinomialLogLoss:
    """Return the log loss for a number of classes."""
    return BinaryLogLoss() if n_classes == 2 else MultinomialLogLoss(n_classes)


def _class_shares(target: Target, weight: Floats | None, n_classes: int) -> Floats:
    """Return the weighted share of each class; a class of weight zero gets a tiny share, so that its logarithm is finite."""
    sums = np.bincount(target, weights=weight, minlength=n_classes).astype(np.float64)
    shares = sums / sums.sum()
    return np.clip(shares, np.finfo(np.float64).eps, 1 - np.finfo(np.float64).eps)


def _inside(predicted: Floats) -> Floats:
    """Return probabilities clipped to values other than 0 and 1, as in scikit-learn's boosting with ``init``."""
    least = float(np.finfo(np.float32).eps)
    return np.clip(predicted, least, 1.0 - least)


@dataclass(frozen=True)
class Exponential(OneOutput):
    """exp(-raw) for the second class and exp(raw) for the first; the raw prediction is half the log odds of the second."""

    def initial(self, target: Target, weight: Floats | None) -> Floats:
        """Return half the log odds of the weighted class shares, shape (1,)."""
        return 0.5 * BinaryLogLoss().initial(target, weight)

    def gradients(self, target: Target, opened: Floats, output: int, g: Floats, h: Floats) -> None:
        """Write the loss, with positive sign for the first class and negative for the second, to g, and the loss to h."""
        kernels().exponential_gradients(target, opened[output], g, h)

    def pointwise(self, target: Target, raw: Floats, out: Floats) -> None:
        """Write each row's loss."""
        kernels().exponential_loss(target, raw[0], out)

    def predictions(self, raw: Floats) -> Floats:
        """Return class probabilities, shape (n, 2), from raw predictions of shape (n, 1)."""
        return BinaryLogLoss().predictions(2.0 * raw)

    def raw_predictions(self, predicted: Floats) -> Floats:
        """Return half the log odds of class 1, shape (n, 1), from probabilities of shape (n, 2)."""
        return 0.5 * BinaryLogLoss().raw_predictions(predicted)
