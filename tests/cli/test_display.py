"""What is printed, on a terminal and in a log."""

import io
import warnings

from rich.console import Console

from dtrees.cli.display import Display
from dtrees.ensemble.metrics import Score


def make(terminal: bool) -> tuple[Display, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    consoles = [Console(file=file, force_terminal=terminal, width=100, highlight=False) for file in (out, err)]
    return Display(*consoles), out, err


def test_warnings_are_notes_said_once() -> None:
    display, _, err = make(terminal=False)
    before = warnings.showwarning
    with display.warnings():
        for _ in range(2):
            warnings.showwarning("the sky falls", UserWarning, "file", 1)
    assert err.getvalue() == "Note: the sky falls\n"
    assert warnings.showwarning is before


def test_names_are_not_taken_for_markup() -> None:
    display, out, err = make(terminal=True)
    display.note("[bold]x")
    display.result("[/]")
    display.scores("[red]", [Score("R2", 0.5, -0.00004, True), Score("RMSE", 1234.5, 2.0, False)], "[b]")
    with display.stage("reading [x]"):
        pass
    assert "[bold]x" in err.getvalue()
    assert "reading [x]" in err.getvalue()
    for text in ("[/]", "[red]", "baseline ([b])", "1,234", "0.5000", "-0.0000"):
        assert text in out.getvalue()
