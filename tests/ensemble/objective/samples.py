"""Rows for losses, and what losses say of them."""

import numpy as np


def sample(loss, n_classes, n=200, seed=0):
    """Return targets, raw predictions and weights."""
    rng = np.random.default_rng(seed)
    target = rng.integers(0, n_classes, n).astype(np.int32) if n_classes else rng.gamma(2.0, size=n)
    return target, rng.normal(scale=2, size=(loss.n_outputs, n)), rng.uniform(0.1, 3, n)


def derivatives(loss, target, raw, output):
    g, h = np.empty(len(target)), np.empty(len(target))
    opened = np.empty_like(raw)
    loss.open_round(raw, opened)
    loss.gradients(target, opened, output, g, h)
    return g, h


def pointwise(loss, target, raw):
    losses = np.empty(len(target))
    loss.pointwise(target, raw, losses)
    return losses
