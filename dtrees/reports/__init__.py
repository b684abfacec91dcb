"""Report a model and its scores for some rows as one HTML page.

``report``
    the page; the function that users call.
``targets``, ``orders``
    one target and its scores, beside those of a trivial prediction; of rankings, censored times and outliers, whose predictions are
    compared with one another, also what is drawn of them.
``facts``
    facts about the model: parameters, sizes, where it was fitted, with which versions; and about the columns of the rows.
``figures``
    pictures, as SVG inside the page.
``behaviour``
    the rows that it is about, those given or a sample of them, and what the model predicts for them; more pictures: importances of columns,
    how predictions depend on columns, and Shapley values; and slices, groups of rows with certain values of one column that are predicted
    worse than others.
"""
