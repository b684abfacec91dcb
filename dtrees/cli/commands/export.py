"""``dtrees export``: a saved model as a file of another tool."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dtrees
from dtrees.atomic_file import atomic_file
from dtrees.cli.data.output import check_destinations
from dtrees.cli.models import load_trees
from dtrees.cli.terminal.display import Display


def run(*, model: str, form: str, output: str, tree: int, display: Display | None = None) -> None:
    """Carry out the command; the arguments are its options."""
    display = display or Display()
    check_destinations({"--output": output}, [model])
    estimator = load_trees(model)
    content = _TEXTS[form](estimator, tree).encode() if form in _TEXTS else _WRITERS[form](estimator)
    with atomic_file(output) as file:
        file.write(content)
    display.result(f"Wrote {output} ({form}, {len(content):,} bytes)")


def _text(estimator: Any, tree: int) -> str:
    return dtrees.export_text(estimator, tree_index=tree, max_depth=1_000_000, show_missing=True)


def _dot(estimator: Any, tree: int) -> str:
    return dtrees.export_graphviz(estimator, tree_index=tree)


def _onnx(estimator: Any) -> bytes:
    content: bytes = dtrees.to_onnx(estimator).SerializeToString()
    return content


def _xgboost(estimator: Any) -> bytes:
    return _through_a_file(lambda path: dtrees.to_xgboost(estimator, path), "model.json")


def _treelite(estimator: Any) -> bytes:
    return _through_a_file(lambda path: dtrees.to_treelite(estimator).serialize(path), "model.treelite")


def _through_a_file(write: Callable[[str], Any], name: str) -> bytes:
    """Return what is written to a path, for tools that write files by themselves."""
    with tempfile.TemporaryDirectory(prefix="dtrees-export-") as folder:
        path = Path(folder) / name
        write(str(path))
        return path.read_bytes()


#: Forms of one tree, and of a model.
_TEXTS: dict[str, Callable[[Any, int], str]] = {"text": _text, "dot": _dot}
_WRITERS: dict[str, Callable[[Any], bytes]] = {"onnx": _onnx, "xgboost": _xgboost, "treelite": _treelite}
