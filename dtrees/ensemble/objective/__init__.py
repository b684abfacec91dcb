"""The losses of boosting, and their kernels."""
