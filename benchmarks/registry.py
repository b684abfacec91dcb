"""The list of benchmarks."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.results import Row
from benchmarks.run import Run


@dataclass(frozen=True)
class Benchmark:
    """A registered benchmark; its text is the first line of the function's docstring."""

    name: str
    text: str
    run: Callable[[Run], Iterator[Row]]


_BENCHMARKS: dict[str, Benchmark] = {}


def benchmark(name: str) -> Callable[[Callable[[Run], Iterator[Row]]], Callable[[Run], Iterator[Row]]]:
    """Register a function of a :class:`~benchmarks.run.Run` that yields rows."""

    def register(function: Callable[[Run], Iterator[Row]]) -> Callable[[Run], Iterator[Row]]:
        assert name not in _BENCHMARKS, name
        _BENCHMARKS[name] = Benchmark(name, (function.__doc__ or "").splitlines()[0], function)
        return function

    return register


def benchmarks() -> dict[str, Benchmark]:
    """Return all benchmarks by name."""
    from benchmarks import works

    for module in pkgutil.iter_modules(works.__path__):
        importlib.import_module(f"benchmarks.works.{module.name}")
    return dict(_BENCHMARKS)
