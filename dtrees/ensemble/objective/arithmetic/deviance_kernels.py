"""The arithmetic of deviances, one row after the other; ``raw`` is the logarithm of the prediction."""

from __future__ import annotations

from dtrees.split.compile.kernels import kernel
from dtrees.split.numbers.elementary import exponential_of_any, logarithm


@kernel
def poisson_gradients(target, raw, g, h):
    """Write the derivatives of half the Poisson deviance."""
    for i in range(target.shape[0]):
        h[i] = exponential_of_any(raw[i])
        g[i] = h[i] - target[i]


@kernel
def poisson_deviance(target, raw, out):
    """Write 2 (y log(y / p) - y + p)."""
    for i in range(target.shape[0]):
        y = target[i]
        constant = y * (logarithm(y) - raw[i]) - y if y > 0.0 else 0.0
        out[i] = 2.0 * max(constant + exponential_of_any(raw[i]), 0.0)


@kernel
def gamma_gradients(target, raw, g, h):
    """Write the derivatives of half the gamma deviance."""
    for i in range(target.shape[0]):
        h[i] = target[i] * exponential_of_any(-raw[i])
        g[i] = 1.0 - h[i]


@kernel
def gamma_deviance(target, raw, out):
    """Write 2 (y / p - log(y / p) - 1)."""
    for i in range(target.shape[0]):
        ratio = target[i] * exponential_of_any(-raw[i])
        out[i] = 2.0 * max(ratio - (logarithm(target[i]) - raw[i]) - 1.0, 0.0)


@kernel
def tweedie_gradients(target, raw, power, g, h):
    """Write the derivatives of half the Tweedie deviance."""
    for i in range(target.shape[0]):
        one, other = exponential_of_any((2.0 - power) * raw[i]), target[i] * exponential_of_any((1.0 - power) * raw[i])
        g[i] = one - other
        h[i] = (2.0 - power) * one - (1.0 - power) * other


@kernel
def tweedie_deviance(target, raw, power, out):
    """Write 2 (y**(2 - power) / ((1 - power) (2 - power)) - y p**(1 - power) / (1 - power) + p**(2 - power) / (2 - power))."""
    up, down = 2.0 - power, 1.0 - power
    for i in range(target.shape[0]):
        y = target[i]
        constant = exponential_of_any(up * logarithm(y)) / (up * down) if y > 0.0 else 0.0
        half = constant - y * exponential_of_any(down * raw[i]) / down + exponential_of_any(up * raw[i]) / up
        out[i] = 2.0 * max(half, 0.0)


@kernel
def exponential_gradients(target, raw, g, h):
    """Write the derivatives of exp(-raw) for class 1 and exp(raw) for class 0."""
    for i in range(target.shape[0]):
        h[i] = exponential_of_any(-raw[i] if target[i] == 1 else raw[i])
        g[i] = -h[i] if target[i] == 1 else h[i]


@kernel
def exponential_loss(target, raw, out):
    """Write exp(-raw) for class 1 and exp(raw) for class 0."""
    for i in range(target.shape[0]):
        out[i] = exponential_of_any(-raw[i] if target[i] == 1 else raw[i])
