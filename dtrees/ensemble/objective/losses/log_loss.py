"""Log loss: the negative log likelihood of labels, of two classes by one raw prediction, of more by one for each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.objective.loss import BaseLoss, OneOutput, kernels, probabilities_inside


@dataclass(frozen=True)
class BinaryLogLoss(OneOutput):
    """Log loss of two classes; the raw prediction is the log odds of class 1."""

    n_outputs: int = 1
    constant_hessian: bool = False

    def initial(self, target: NDArray[np.int32], weight: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Return the log odds of the weighted class shares, shape (1,)."""
        shares = _class_shares(target, weight, 2)
        return kernels().log(shares[1:] / shares[:1])

    def gradients(
        self, target: NDArray[np.int32], opened: NDArray[np.float64], output: int, g: NDArray[np.float64], h: NDArray[np.float64]
    ) -> None:
        """Write g = p - [target is 1] and h = p (1 - p)."""
        kernels().binary_gradients(target, opened[output], g, h)

    def pointwise(self, target: NDArray[np.int32], raw: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Write each row's negative log likelihood."""
        kernels().binary_loss(target, raw[0], out)

    def predictions(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return class probabilities, shape (n, 2), from raw predictions of shape (n, 1)."""
        from dtrees.split.compile.kernels import plain

        found = np.empty((raw.shape[0], 2))
        kernels().binary_probabilities(plain(raw[:, 0]), found)
        return found

    def raw_predictions(self, predicted: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the log odds of class 1, shape (n, 1), from probabilities of shape (n, 2)."""
        second = probabilities_inside(predicted[:, 1:])
        return kernels().log(second / (1.0 - second))


@dataclass(frozen=True)
class MultinomialLogLoss(BaseLoss):
    """Log loss of K classes; raw predictions are log probabilities up to a constant a row (softmax).

    The hessian of one output is taken as K / (K - 1) times its diagonal p (1 - p): the K trees of a round move all outputs at once, and
    with this factor a round is the symmetric step of Friedman (2001), equation 33, and for K = 2 the step of the binary loss.
    """

    n_outputs: int
    constant_hessian: bool = False

    def initial(self, target: NDArray[np.int32], weight: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Return the logs of the weighted class shares, shape (K,)."""
        return kernels().log(_class_shares(target, weight, self.n_outputs))

    def open_round(self, raw: NDArray[np.float64], opened: NDArray[np.float64]) -> None:
        """Write the probabilities of the classes, up to a factor a row."""
        kernels().exponentials(raw, opened)

    def gradients(
        self, target: NDArray[np.int32], opened: NDArray[np.float64], output: int, g: NDArray[np.float64], h: NDArray[np.float64]
    ) -> None:
        """Write g = p - [target is ``output``] and h = K / (K - 1) p (1 - p)."""
        kernels().multinomial_gradients(target, opened, output, g, h)

    def pointwise(self, target: NDArray[np.int32], raw: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Write each row's negative log likelihood."""
        kernels().multinomial_loss(target, raw, out)

    def predictions(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return class probabilities, shape (n, K), from raw predictions of shape (n, K)."""
        from dtrees.split.compile.kernels import plain

        found = np.empty(raw.shape)
        kernels().probabilities(plain(raw), found)
        return found

    def raw_predictions(self, predicted: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return logarithms of probabilities less their mean over classes, shape (n, K)."""
        logarithms = kernels().log(probabilities_inside(predicted))
        return np.asarray(logarithms - logarithms.mean(axis=1, keepdims=True))


def log_loss_for(n_classes: int) -> BinaryLogLoss | MultinomialLogLoss:
    """Return the log loss of so many classes."""
    return BinaryLogLoss() if n_classes == 2 else MultinomialLogLoss(n_classes)


def _class_shares(target: NDArray[np.int32], weight: NDArray[np.float64] | None, n_classes: int) -> NDArray[np.float64]:
    """Return the weight of each class over all weight; a class of weight zero gets a tiny share, so that its log is finite."""
    sums = np.bincount(target, weights=weight, minlength=n_classes).astype(np.float64)
    shares = sums / sums.sum()
    return np.clip(shares, np.finfo(np.float64).eps, 1 - np.finfo(np.float64).eps)
