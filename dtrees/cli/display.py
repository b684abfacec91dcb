"""Output: results on stdout; notes on stderr, so that results can be piped."""

from __future__ import annotations

import contextlib
import json
import math
import time
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from dtrees.ensemble.metrics import Score


#: Of scores, by how they compare with the baseline.
_STYLES = {"good": "bold green", "bad": "bold red", "": "bold"}


class Display:
    """Prints notes and results of one command.

    Parameters
    ----------
    stdout, stderr : rich.console.Console, optional
        Where to print; by default the process's own streams.
    as_json : bool, default=False
        Print results as one JSON document (:meth:`document`), and output for people on stderr.
    """

    def __init__(self, stdout: Console | None = None, stderr: Console | None = None, *, as_json: bool = False) -> None:
        # Soft wrapping: a path or link that is longer than the line stays on one line, so that it can be copied.
        self._as_json = as_json
        self.stderr = stderr or Console(stderr=True, highlight=False, soft_wrap=True)
        self.stdout = self.stderr if as_json else stdout or Console(highlight=False, soft_wrap=True)

    def document(self, content: Mapping[str, Any]) -> None:
        """Print the results of a command as JSON, if requested; NaN and infinities become null."""
        if self._as_json:
            click.echo(json.dumps(_plain(content), indent=2, allow_nan=False))

    def table(self, rows: Sequence[Sequence[str | Text]], heads: Sequence[str] = (), right: Collection[int] = ()) -> None:
        """Print rows of text side by side, the columns ``right`` flush right."""
        table = Table(show_header=bool(heads))
        for head in heads or [""] * len(rows[0]):
            table.add_column(Text(head))
        for number in right:
            table.columns[number].justify = "right"
        for row in rows:
            table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
        self.stdout.print(table, soft_wrap=False)

    def note(self, message: str) -> None:
        """Print a note about progress."""
        self.stderr.print(Text(message))

    def warn(self, message: str) -> None:
        """Print a warning that requires no action."""
        self.stderr.print(Text(f"Note: {message}", style="yellow"))

    def repeated_names(self, data: str, repeated: Mapping[str, str]) -> None:
        """Report CSV columns whose name differs from the file, where an earlier column has the same name."""
        for called, name in repeated.items():
            self.warn(f"{data!r} has several columns {name!r}; this one is called {called!r} here.")

    @contextlib.contextmanager
    def warnings(self) -> Iterator[None]:
        """Print the Python warnings of the block as notes, each once and without its line of code."""
        said: set[str] = set()

        def show(message: Warning | str, *_: Any, **__: Any) -> None:
            if str(message) not in said:
                said.add(str(message))
                self.warn(str(message))

        before = warnings.showwarning
        warnings.showwarning = show
        try:
            yield
        finally:
            warnings.showwarning = before

    def result(self, message: str) -> None:
        """Print a result of the command."""
        self.stdout.print(Text(message))

    def scores(self, title: str, scores: Sequence[Score], baseline: str) -> None:
        """Print scores of a model and of the baseline."""
        rows = []
        for score in scores:
            model, trivial = (f"{value:.4f}" if score.greater_is_better else _figure(value) for value in (score.model, score.baseline))
            rows.append((score.name, Text(model, style=_STYLES[score.verdict]), "" if math.isnan(score.baseline) else trivial))
        self.stdout.print(Text(title, style="bold"))
        self.table(rows, ("", "model", f"baseline ({baseline})"), right=[1, 2])

    @contextlib.contextmanager
    def stage(self, description: str) -> Iterator[None]:
        """Show a running step of unknown length and, when it is done, how long it took."""
        start = time.monotonic()
        with self.stderr.status(escape(description)) if self.stderr.is_terminal else contextlib.nullcontext():
            yield
        self.note(f"{description}: {time.monotonic() - start:.1f} s")


def _plain(value: Any) -> Any:
    """Return a value in a form that JSON supports.

    >>> _plain({"a": np.float64("nan"), "b": (np.int64(3), "x")})
    {'a': None, 'b': [3, 'x']}
    """
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)


def plural(count: int, noun: str) -> str:
    """Return a number with its noun.

    >>> plural(1, "worker"), plural(20640, "row")
    ('1 worker', '20,640 rows')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _figure(value: float) -> str:
    """Return a number with four significant digits or, above 1000, as an integer.

    >>> _figure(0.83251), _figure(48123.4), _figure(-0.00004)
    ('0.8325', '48,123', '-4e-05')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
