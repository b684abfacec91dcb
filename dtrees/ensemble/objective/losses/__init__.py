"""The losses of boosting, a file each, and what some of them have in common: ``by_order``, ``log_link``."""
