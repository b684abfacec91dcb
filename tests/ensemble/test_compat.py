"""scikit-learn's private parts: that the metrics it names are recognised, and that nothing else of dtrees reaches for them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import sklearn.metrics

import dtrees
from dtrees.ensemble.compat import sklearn_metric

PACKAGE = Path(dtrees.__file__).parent


@pytest.mark.parametrize("name", sklearn.metrics.get_scorer_names())
def test_scorers_say_what_they_are(name):
    scorer = sklearn.metrics.get_scorer(name)
    known = sklearn_metric(scorer)
    assert known.greater_is_better
    assert known.sign == (-1 if name.startswith("neg_") else 1)
    assert known.name.startswith("neg_") == name.startswith("neg_")


def test_no_other_module_uses_private_parts():
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sklearn"):
                parts = [*node.module.split("."), *(alias.name for alias in node.names)]
                if any(re.match("_[a-z]", part) for part in parts):
                    found.add(path.relative_to(PACKAGE).as_posix())
    assert found == {"ensemble/compat.py"}


def test_estimators_link_to_the_documentation_where_its_address_is_known(monkeypatch):
    model = dtrees.RandomForestClassifier()
    monkeypatch.delenv("DTREES_DOCS", raising=False)
    assert "scikit-learn.org" not in model._get_doc_link()
    assert 'href="https://scikit-learn.org' not in model._repr_html_()
    monkeypatch.setenv("DTREES_DOCS", "https://docs.example/dtrees/")
    assert model._get_doc_link() == "https://docs.example/dtrees/api/dtrees.RandomForestClassifier.html"
    assert 'href="https://docs.example/dtrees/api/dtrees.RandomForestClassifier.html"' in model._repr_html_()


def test_defaults_of_a_class_of_the_user_are_checked_too():
    class Deep(dtrees.DecisionTreeClassifier):
        def __init__(self, max_depth="deep"):
            super().__init__()
            self.max_depth = max_depth

    X, y = [[0.0], [1.0]], [0, 1]
    with pytest.raises(ValueError, match="The 'max_depth' parameter of Deep must be"):
        Deep().fit(X, y)
    assert Deep(max_depth=1).fit(X, y).get_depth() == 1
