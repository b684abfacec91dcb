"""Shapley values of predictions: what each column of a row has added, exactly, over all orders in which columns may become known."""
