"""The description of a fit, and the limits that follow from it."""
