"""What is printed: results on stdout; notes and live progress on stderr, so that results can be piped.

Where stderr is no terminal (a log file, CI) the live display becomes a plain line every few seconds.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
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
    from dtrees.ensemble import callbacks
    from dtrees.ensemble.scores import Score

#: Seconds between lines where there is no terminal.
_LINE_INTERVAL = 10.0

#: Seconds without a first tree after which the wait is explained, and between looks at how many kernels are compiled.
_PATIENCE = 4.0


class Display:
    """Prints notes, progress and results of one command.

    Parameters
    ----------
    stdout, stderr : rich.console.Console, optional
        Where to; by default the process's own streams.
    as_json : bool, default=False
        Print results as one JSON document (:meth:`document`), and what is meant for people on stderr.
    """

    def __init__(self, stdout: Console | None = None, stderr: Console | None = None, *, as_json: bool = False) -> None:
        # Soft wrapping: a path or link that is longer than the line stays in one piece, to be copied.
        self._as_json = as_json
        self.stderr = stderr or Console(stderr=True, highlight=False, soft_wrap=True)
        self.stdout = self.stderr if as_json else stdout or Console(highlight=False, soft_wrap=True)

    def document(self, content: Mapping[str, Any]) -> None:
        """Print the results of a command as JSON, if that is asked for; what is no number is null."""
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
        """Say what is going on."""
        self.stderr.print(Text(message))

    def warn(self, message: str) -> None:
        """Say what the user should know, but need not act on."""
        self.stderr.print(Text(f"Note: {message}", style="yellow"))

    def repeated_names(self, data: str, repeated: Mapping[str, str]) -> None:
        """Mention CSV columns that are called otherwise here than in the file, where an earlier one has the same name."""
        for called, name in repeated.items():
            self.warn(f"{data!r} has several columns {name!r}; this one is called {called!r} here.")

    @contextlib.contextmanager
    def warnings(self) -> Iterator[None]:
        """Print the Python warnings of the block as notes, each once and without the line of code that it came from."""
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
        """Print what the user asked for."""
        self.stdout.print(Text(message))

    def scores(self, title: str, scores: Sequence[Score], baseline: str) -> None:
        """Print figures of a model beside those of the baseline."""
        rows = []
        for score in scores:
            model, trivial = (f"{value:.4f}" if score.greater_is_better else _figure(value) for value in (score.model, score.baseline))
            rows.append((score.name, Text(model, style="bold green" if score.is_better else "bold red"), trivial))
        self.stdout.print(Text(title, style="bold"))
        self.table(rows, ("", "model", f"baseline ({baseline})"), right=[1, 2])

    @contextlib.contextmanager
    def stage(self, description: str) -> Iterator[None]:
        """Show that something without a known length is under way, and when it is done, how long it took."""
        start = time.monotonic()
        with self.stderr.status(escape(description)) if self.stderr.is_terminal else contextlib.nullcontext():
            yield
        self.note(f"{description}: {time.monotonic() - start:.1f} s")

    @contextlib.contextmanager
    def training(self, unit: str, elsewhere: bool = False) -> Iterator[TrainingProgress]:
        """Show the progress of a fit; what is yielded is a callback for ``fit(..., callbacks=[...])``.

        Parameters
        ----------
        unit : str
            What is counted: ``"tree"`` or ``"round"``.
        elsewhere : bool, default=False
            Whether it runs on machines whose messages are not seen here: a long wait for the first is then explained.
        """
        from dtrees.ensemble import callbacks  # takes a while

        bar = callbacks.TerminalBar(unit, self.stderr, transient=True) if self.stderr.is_terminal else callbacks.Display()
        progress = TrainingProgress(self, bar, unit)
        ended = threading.Event()
        threading.Thread(target=progress.while_waiting, args=(ended, elsewhere), daemon=True).start()
        try:
            bar.begin()
            yield progress
        finally:
            ended.set()
            bar.end()
        self.note(progress.summary())


class TrainingProgress:
    """The callback that turns the fit's progress into a bar, or into lines now and then."""

    def __init__(self, display: Display, bar: callbacks.Display, unit: str) -> None:
        self._display, self._bar, self._unit = display, bar, unit
        self._in_lines = not display.stderr.is_terminal
        self._start = self._last_line = time.monotonic()
        self._done = 0
        self._score = ""

    def while_waiting(self, ended: threading.Event, elsewhere: bool) -> None:
        """Say now and then that nothing is done yet, until something is, or the fit has ended; of a fit elsewhere say once why."""
        from dtrees.engine.run.compiling import n_compiled

        n_before = n_compiled()
        while not ended.wait(_PATIENCE) and not self._done:
            now, n_kernels = time.monotonic(), n_compiled() - n_before
            compiled = f"; {plural(n_kernels, 'kernel')} compiled" if n_kernels and not elsewhere else ""
            if elsewhere and self._last_line == self._start:
                self._display.note(f"Still preparing. The first {self._unit} on a machine waits for the kernels to be compiled, once.")
            elif not self._in_lines and compiled:
                self._bar.compiling()
            elif not self._in_lines or now - self._last_line < _LINE_INTERVAL:
                continue
            else:
                self._display.note(f"Training: no {self._unit} yet after {now - self._start:.0f} s{compiled}")
            self._last_line = now

    def __call__(self, progress: Any) -> None:
        """Take in one finished tree or round (a ``dtrees.callbacks.Progress``)."""
        from dtrees.ensemble.callbacks import figures

        self._done = max(self._done, progress.done)
        self._score = ", ".join(f"{name} {_figure(value)}" for name, value in figures(progress).items())
        self._bar.update(progress)
        now = time.monotonic()
        due = now - self._last_line >= _LINE_INTERVAL and self._done < progress.total
        if due and self._in_lines:
            self._last_line = now
            self._display.note(f"Training: {self._done} of {plural(progress.total, self._unit)}{self._score and ', '}{self._score}")

    def summary(self) -> str:
        """Return what was done, in one line."""
        count = plural(self._done, self._unit) if self._done else "done"
        return f"Training: {count} in {time.monotonic() - self._start:.1f} s{self._score and ', '}{self._score}"


def _plain(value: Any) -> Any:
    """Return what JSON can hold.

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
    """Return a count and what is counted.

    >>> plural(1, "worker"), plural(20640, "row")
    ('1 worker', '20,640 rows')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _figure(value: float) -> str:
    """Return a figure with four significant digits or, above 1000, as a whole number.

    >>> _figure(0.83251), _figure(48123.4), _figure(-0.00004)
    ('0.8325', '48,123', '-4e-05')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
