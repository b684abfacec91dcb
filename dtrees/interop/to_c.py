"""Convert a model to C: one file without dependencies, whose predictions equal those of the model to the last bit.

The nodes of all trees are in one table, in preorder, so that a left child is the next node, and one loop walks down tree after tree.
Values are added in the order of :mod:`dtrees.tree.predict`, and links repeat those of :mod:`dtrees.ensemble.objective.kernels`,
operation by operation: if every operation is rounded separately, the result is unique.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.input.column import CATEGORICAL
from dtrees.ensemble.prediction import by_target
from dtrees.interop.description import PlainModel, describe_members
from dtrees.split.numbers import elementary
from dtrees.tree.packing import node_record, pack_nodes
from dtrees.tree.tree import Tree
from dtrees.version import __version__

#: Numbers in a line of an array.
_IN_LINE = 10


@cache
def _part(name: str) -> Template:
    """Return a section of ``model.c``, which begins with its name as a comment."""
    text = (Path(__file__).parent / "model.c").read_text(encoding="ascii")
    return Template(dict(re.findall(r"^// (\w+)\n(.*?)(?=^// |\Z)", text, re.MULTILINE | re.DOTALL))[name])


def to_c(model: Any, *, name: str = "model") -> str:
    """Return a C99 file that reproduces the predictions of a model to the last bit, and needs only a compiler.

    Its functions take one row as an array of doubles: the row as numbers (:func:`to_numbers`), in which NaN is a missing value.

    - ``void NAME_predict(const double *x, double *out)`` for regressors writes a number for each target;
    - ``void NAME_predict_proba(const double *x, double *out)`` for classifiers writes one for each class, in the order of ``classes_``;
    - ``int NAME_predict(const double *x)`` for classifiers returns the position in ``classes_``; for multi-output models,
      ``void NAME_predict(const double *x, int *places)`` writes one for each;
    - ``void NAME_decision_function(const double *x, double *raw)`` for boosting of classes writes the raw predictions;
    - ``void NAME_score_samples(const double *x, double *out)``, ``void NAME_decision_function(const double *x, double *above)`` and
      ``int NAME_predict(const double *x)`` for an isolation forest.

    If the model was fitted with ``base_margin``, the functions take the raw scores of the row as a second argument,
    ``const double *base_margin``. Other methods, such as ``predict_interval``, have no function.

    A comment at the top lists these functions, the columns, their categories in the order of their numbers, the classes, and the command
    that compiles the file for identical results: ``cc -std=c99 -O2 -ffp-contract=off``.

    Parameters
    ----------
    model : estimator
        A fitted estimator of dtrees.
    name : str, default="model"
        Prefix of all names in the file.

    Returns
    -------
    str
        C source in ASCII.

    Raises
    ------
    TypeError
        If ``model`` is not an estimator of dtrees.
    ValueError
        If the model starts from an estimator, has a loss that another package registered, or ``name`` is not a C identifier.

    Examples
    --------
    >>> from dtrees import DecisionTreeRegressor, to_c
    >>> tree = DecisionTreeRegressor().fit([[1.0], [2.0]], [5.0, 9.0])
    >>> text = to_c(tree, name="price")
    >>> [line for line in text.splitlines() if line.startswith("{1.5")]  # threshold and two leaves
    ['{1.5,0,2},{5.0,0,0},{9.0,0,0},']
    """
    if not (isinstance(name, str) and name.isascii() and name.isidentifier()):
        raise ValueError(f"name is {name!r}; wants an identifier of C: letters, digits and underscores, the first of them no digit")
    members = describe_members(model, "C", holds={"ascending", "score", "margins", "classes of targets"})
    plain, terms = members[0], elementary._TERMS
    facts = _facts(model, name, members)
    parts = [_about(model, plain, facts, sum(len(group) for member in members for group in member.groups)), _trees(members, facts)]
    if {"exponential", "logistic", "softmax", "score"} & {link.kind for link in plain.links}:
        constants = {"rounder": elementary._ROUNDER, "lowest": elementary._LOWEST, "per_ln_2": elementary._PER_LN_2}
        constants |= {"ln_2": elementary._LN_2, "rest": elementary._REST_OF_LN_2}
        numbers = {key: _number(constant) for key, constant in constants.items()}
        parts.append(_part("exponential_function").substitute(facts, terms=_lines(map(_number, terms)), n_terms=len(terms), **numbers))
    parts.append(_part("predict").substitute(facts, link=_link(plain, facts)))
    parts += [_part(kind).substitute(facts) for kind in (["largest"] if facts["n_targets"] else []) + _further(model, plain)]
    return "".join(parts)


def _facts(model: Any, name: str, members: list[PlainModel]) -> dict[str, Any]:
    """Return the values of the placeholders."""
    plain, classes = members[0], [labels.tolist() for labels in by_target(members[0].classes)]
    starts = _starts(map(len, classes))
    places = (f"    places[{t}] = {name}_largest(shares + {at}, {to - at});\n" for t, (at, to) in enumerate(pairwise(starts)))
    margin = {"margin": ", const double *base_margin", "margin_given": ", base_margin", "margin_added": " + base_margin[sum]"}
    margin["margin_of_row"] = f"base_margin[{plain.n_outputs}] = {{0}}, "
    return {
        "name": name,
        "method": "score_samples" if plain.link == "score" else "predict_proba" if classes else "predict",
        "n_raw": plain.n_outputs,
        "n_out": sum(link.n_predicted for link in plain.links),
        "n_groups": len(plain.groups),
        "n_values": plain.n_outputs // len(plain.groups),
        "n_members": len(members),
        "n_targets": len(classes),
        "divisor": _number(plain.divisor),
        "classes": _quoted(classes[0] if len(classes) == 1 else classes),
        "places": "".join(places),
        "offset": _number(model.offset_) if plain.link == "score" else "",
        **(margin if plain.by_margin else dict.fromkeys(margin, "")),
    }


def _link(plain: PlainModel, facts: dict[str, Any]) -> str:
    """Return the code of the link: of all raw predictions, or target by target."""
    parts = []
    for link in plain.links:
        own = facts | {"n_raw": link.n_outputs, "slope": _number(link.slope), "ln_2": _number(math.log(2.0))}
        code = _part("identity" if link.kind == "shares" else link.kind).substitute(own)
        parts.append(code if len(plain.links) == 1 else _part("target").substitute(own, link=code, n_predicted=link.n_predicted))
    return "".join(parts)


def _further(model: Any, plain: PlainModel) -> list[str]:
    """Return the names of the parts with further functions."""
    if plain.link == "score":
        return ["outlier"]
    labels: list[str] = {0: [], 1: ["label"]}.get(len(by_target(plain.classes)), ["labels"])
    return labels + ["decision"] * hasattr(model, "decision_function")


def _about(model: Any, plain: PlainModel, facts: dict[str, Any], n_trees: int) -> str:
    """Return the beginning of the file: a comment, and include directives."""
    names = plain.names or [""] * plain.n_features
    lists = [_quoted(column.categories) if column.kind == CATEGORICAL else "" for column in plain.schema.columns]
    columns = [(f"x[{j}]", _quoted(name) if name else "", known) for j, (name, known) in enumerate(zip(names, lists, strict=True))]
    return _part("about").substitute(
        facts,
        estimator=type(model).__name__,
        version=__version__,
        n_trees=n_trees,
        n_columns=plain.n_features,
        of_further="".join(_part(f"of_{kind}").substitute(facts) for kind in _further(model, plain)),
        of_margin=_part("of_margin").substitute(facts) if plain.by_margin else "",
        columns="".join(f"       {' '.join(filter(None, column))}\n" for column in columns if any(column[1:])),
    )


def _quoted(values: Any) -> str:
    r"""Return values as JSON that can be part of a C comment.

    >>> print(_quoted(["a */", "Ä"]))
    ["a *\u002f", "\u00c4"]
    """
    return re.sub(r"(?<=\*)/|/(?=\*)", r"\\u002f", json.dumps(values, default=str))


def _trees(members: list[PlainModel], facts: dict[str, Any]) -> str:
    """Return the tables of the trees, and the functions that add their values."""
    plain = members[0]
    groups = [group for member in members for group in member.groups]
    trees = [tree for group in groups for tree in group]
    n_categories = [len(column.categories) if column.kind == CATEGORICAL else 0 for column in plain.schema.columns]
    number, slot, right, sets, roots = _arrays(trees)
    value = np.concatenate([tree.value for tree in trees])
    leaf = right == 0
    tables, test = "", ""
    if facts["n_values"] == 1:
        number[leaf] = value[leaf, 0]
    else:
        slot[leaf] = np.arange(np.count_nonzero(leaf))
        rows = (f"{{{','.join(map(_number, row))}}}" for row in value[leaf].tolist())
        tables += _part("values").substitute(facts, values=_lines(rows))
    if any(n_categories):
        sets += [0, 0]  # some compilers read beyond an empty set
        tables += _part("sets").substitute(facts, n_categories=_lines(map(str, n_categories)), sets=_lines(map(str, sets)))
        test = _part("test").substitute(facts)
    nodes = zip(map(_number, number.tolist()), slot.tolist(), right.tolist(), strict=True)
    return _part("trees").substitute(
        facts,
        nodes=_lines(f"{{{n},{s},{r}}}" for n, s, r in nodes),
        tables=tables,
        test=test,
        roots=_lines(map(str, roots)),
        first=_lines(map(str, _starts(map(len, groups)))),
        initial=_lines(_number(start) for member in members for start in member.initial.tolist()),
        value="leaf->number" if facts["n_values"] == 1 else Template("${name}_values[leaf->slot][k]").substitute(facts),
    )


def _starts(sizes: Iterable[int]) -> list[int]:
    """Return the start of each of several adjacent blocks, and the end of the last."""
    return list(accumulate(sizes, initial=0))


def _arrays(trees: list[Tree]) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64], list[int], list[int]]:
    """Return ``number``, ``slot`` and ``right`` of all nodes, which are 0 for leaves, the words of the sets, and where trees begin."""
    roots, nodes, words = pack_nodes(trees, node_record())
    leaf, has_set = nodes["feature"] < 0, nodes["first_word"] >= 0
    number, first = np.where(leaf, 0.0, nodes["threshold"]), nodes["first_word"][has_set]
    number[has_set] = first + np.arange(len(first))  # in front of each set is its number of words
    slot = np.where(leaf, 0, 4 * nodes["feature"].astype(np.int64) + 2 * has_set + nodes["missing_left"])
    place = np.arange(len(nodes)) - np.repeat(roots[:-1], np.diff(roots))
    sets = np.insert(words, first, nodes["n_words"][has_set])
    return number, slot, np.where(leaf, 0, nodes["right"] - place), sets.tolist(), roots[:-1].tolist()


def _number(x: float) -> str:
    """Return a float as a C literal: with 15 digits or fewer, which every compiler reads as this float, or in hexadecimal.

    >>> [_number(x) for x in (0.5, 1 / 3, math.inf)]
    ['0.5', '0x1.5555555555555p-2', 'INFINITY']
    """
    if math.isinf(x):
        return "INFINITY" if x > 0 else "-INFINITY"
    decimal = repr(float(x))
    return decimal if len(decimal) <= 16 else re.sub("0+p", "p", float(x).hex())


def _lines(items: Iterable[str]) -> str:
    """Return the items of an array, several in each line."""
    given = list(items)
    return "".join(f"{','.join(given[first : first + _IN_LINE])},\n" for first in range(0, len(given), _IN_LINE))
