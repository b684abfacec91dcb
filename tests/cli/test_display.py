"""What is printed, on a terminal and in a log."""

from __future__ import annotations

import io
import time
import warnings

import pytest
from rich.console import Console

from dtrees.cli import display as module
from dtrees.cli.display import Display
from dtrees.engine.plan.plans import Progress
from dtrees.engine.run import compiling
from dtrees.ensemble.scores import Score


def make(terminal: bool) -> tuple[Display, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    consoles = [Console(file=file, force_terminal=terminal, width=100, highlight=False) for file in (out, err)]
    return Display(*consoles), out, err


@pytest.mark.parametrize("terminal", [False, True])
def test_training_ends_with_a_summary(terminal: bool) -> None:
    display, _, err = make(terminal)
    with display.training("round") as progress:
        for done in range(1, 4):
            assert progress(Progress(done, 3, 0.1 * done, train_score=1.0 / done, validation_score=2.0)) is None
    assert "Training: 3 rounds in 0." in err.getvalue().splitlines()[-1]
    assert "train loss 0.3333, validation loss 2" in err.getvalue()


def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LINE_INTERVAL", 0.0)
    display, _, err = make(terminal=False)
    with display.training("tree") as progress:
        progress(Progress(1, 2, 0.1))
        progress(Progress(2, 2, 0.2))
    first, last = filter(None, err.getvalue().splitlines())  # Rich before 14.3 ends with an empty line
    assert first == "Training: 1 of 2 trees"
    assert last.startswith("Training: 2 trees in 0.")


def test_a_long_wait_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.01)
    display, _, err = make(terminal=False)
    deadline = time.monotonic() + 30.0
    with display.training("tree", elsewhere=True):
        while "waits for the kernels to be compiled" not in err.getvalue():
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_wait_is_explained_only_while_there_is_one(monkeypatch: pytest.MonkeyPatch, elsewhere: bool) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.05)
    monkeypatch.setattr(module, "_LINE_INTERVAL", 0.0)
    display, _, err = make(terminal=False)
    with display.training("tree", elsewhere) as progress:
        progress(Progress(1, 1, 0.1))
        time.sleep(0.2)
    assert len([*filter(None, err.getvalue().splitlines())]) == 1  # the summary


@pytest.mark.parametrize("terminal", [False, True])
def test_a_wait_for_kernels_shows_progress(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    """Also in a log, where no bar moves."""
    monkeypatch.setattr(module, "_PATIENCE", 0.01)
    monkeypatch.setattr(module, "_LINE_INTERVAL", 0.0)
    monkeypatch.setattr(compiling, "n_compiled", iter(range(10**6)).__next__)
    display, _, err = make(terminal)
    deadline = time.monotonic() + 30.0
    with display.training("tree"):
        while ("Compiling kernels" if terminal else "no tree yet after 0 s; 3 kernels compiled") not in err.getvalue():
            assert time.monotonic() < deadline
            time.sleep(0.01)


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
