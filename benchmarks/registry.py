"""The list of benchmarks."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.results import Yielded
from benchmarks.run import Run


@dataclass(frozen=True)
class Benchmark:
    """A registered benchmark; its text is the first line of the function's docstring."""

    name: str
    text: str
    run: Callable[[Run], Iterator[Yielded]]


_BENCHMARKS: dict[str, Benchmark] = {}


def benchmark(name: str) -> Callable[[Callable[[Run], Iterator[Yielded]]], Callable[[Run], Iterator[Yielded]]]:
    """Register a function of a :class:`~benchmarks.run.Run` that yields rows and points."""

    def register(function: Callable[[Run], Iterator[Yielded]]) -> Callable[[Run], Iterator[Yielded]]:
        assert name not in _BENCHMARKS, name
        _BENCHMARKS[name] = Benchmark(name, (function.__doc__ or "").splitlines()[0], function)
        return function

    return register


#: The order of the table: what targets are stated for first. Files that are not listed follow.
_ORDER = ("boosting", "forests", "prediction", "memory", "losses", "held_out", "worst_cases", "kinds")


def benchmarks() -> dict[str, Benchmark]:
    """Return all benchmarks by name, in the order of the table."""
    from benchmarks import works

    found = [module.name for module in pkgutil.iter_modules(works.__path__)]
    for name in [*_ORDER, *sorted(set(found) - set(_ORDER))]:
        importlib.import_module(f"benchmarks.works.{name}")
    return dict(_BENCHMARKS)
