"""Rows for tests of losses."""

import numpy as np

from dtrees.ensemble.objective.survival import Censored


def sample(loss, n_classes, n=200, seed=0):
    """Return targets, raw predictions and weights."""
    rng = np.random.default_rng(seed)
    target = rng.integers(0, n_classes, n).astype(np.int32) if n_classes else rng.gamma(2.0, size=n)
    if isinstance(loss, Censored):  # a third each observed, censored on the right, and known by an interval
        target = np.stack([target, target * np.choose(rng.integers(0, 3, n), [1.0, np.inf, 1.5])])
    return target, rng.normal(scale=2, size=(loss.n_outputs, n)), rng.uniform(0.1, 3, n)


def derivatives(loss, target, raw, output):
    g, h = np.empty((2, target.shape[-1]))
    opened = np.empty_like(raw)
    loss.open_round(raw, opened)
    loss.gradients(target, opened, output, g, h)
    return g, h


def pointwise(loss, target, raw):
    losses = np.empty(target.shape[-1])
    loss.pointwise(target, raw, losses)
    return losses
