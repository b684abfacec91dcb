"""Display of the progress of a fit, and the state after Ctrl-C."""

import io
import logging
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import dtrees
from dtrees import KeepOnInterrupt, ProgressBar
from dtrees.callbacks import Progress
from dtrees.ensemble import callbacks, displays
from dtrees.ensemble.displays import Lines, NotebookBar, TerminalBar, live_display

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(200, 3))
Y = X[:, 0] + RANDOM.normal(size=200)
ROUNDS = [Progress(done, 4, 2.0 * done, train_score=1.0 / done, evaluation={"new": {"mae": 2.0}}) for done in range(1, 5)]


def boosting(**parameters: Any) -> dtrees.GradientBoostingRegressor:
    return dtrees.GradientBoostingRegressor(**{"n_estimators": 8, "random_state": 0} | parameters)


def forest(**parameters: Any) -> dtrees.RandomForestRegressor:
    return dtrees.RandomForestRegressor(**{"n_estimators": 8, "random_state": 0} | parameters)


def test_a_terminal_shows_a_bar() -> None:
    file = io.StringIO()
    bar = TerminalBar("round", Console(file=file, force_terminal=True, width=150))
    bar.begin()
    for progress in ROUNDS:
        bar.update(progress)
    bar.end()
    last = file.getvalue().splitlines()[-1]
    for shown in ("Preparing the columns", "rounds", "4/4", "train loss 0.25, new mae 2"):
        assert shown in file.getvalue()
    assert "4/4" in last or "4/4" in file.getvalue().splitlines()[-2]


def test_a_terminal_shows_that_kernels_are_compiled() -> None:
    file = io.StringIO()
    bar = TerminalBar("round", Console(file=file, force_terminal=True, width=150, highlight=False))
    bar.compiling()  # before there is a bar
    bar.begin()
    bar.compiling()
    bar.end()
    assert "Compiling kernels (first use)" in file.getvalue()


class Handle:
    def __init__(self, shown: list[Any]) -> None:
        self._shown = shown

    def update(self, what: Any) -> None:
        self._shown.append(what)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A notebook session, as far as a bar uses it; returns the list of displayed objects."""
    shown: list[Any] = []

    def display(what: Any, display_id: bool) -> Handle:
        assert display_id
        shown.append(what)
        return Handle(shown)

    class ZMQInteractiveShell:
        pass

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = ZMQInteractiveShell  # type: ignore[attr-defined]
    ipython.display = types.ModuleType("IPython.display")  # type: ignore[attr-defined]
    ipython.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    return shown


def test_a_notebook_shows_a_bar(notebook: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(displays, "_SECONDS_BETWEEN_UPDATES", 0.0)
    bar = live_display("round")
    assert isinstance(bar, NotebookBar)
    bar.begin()
    assert repr(notebook[-1]) == "Preparing the columns"
    bar.compiling()
    assert repr(notebook[-1]) == "Compiling kernels (first use)"
    assert notebook[-1]._repr_html_() == "<progress></progress> Compiling kernels (first use)"
    bar.update(ROUNDS[0])
    bar.update(Progress(2, 4, 4.0, evaluation={"<b>": {"mae": 2.0}}))
    assert repr(notebook[-1]).startswith("2 of 4 rounds, 0:0")
    assert ", 0:04 left; <b> mae 2" in repr(notebook[-1])
    html = notebook[-1]._repr_html_()
    assert '<progress max="4" value="2"' in html
    assert "&lt;b&gt; mae 2" in html
    bar.end()
    assert repr(notebook[-1]).startswith("2 of 4 rounds")


def test_a_notebook_shows_a_fit(notebook: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    boosting(verbose=1).fit(X, Y)
    assert repr(notebook[-1]).startswith("8 of 8 rounds")
    assert capsys.readouterr() == ("", "")


def test_what_shows_it_depends_on_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert isinstance(live_display("tree"), Lines)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert isinstance(live_display("tree"), TerminalBar)
    monkeypatch.setattr(sys, "stderr", None)
    assert isinstance(live_display("tree"), Lines)


def test_lines_tell_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines("round")
    for progress in ROUNDS:
        lines.update(progress)
        lines.compiling()
    first, compiling, second, _, last = capsys.readouterr().err.splitlines()
    assert compiling == "compiling kernels (first use)"
    assert first == "round 1 of 4 after 2.0 s, train loss 1, new mae 2"
    assert second == "round 2 of 4 after 4.0 s, 4.0 s left, train loss 0.5, new mae 2"
    assert last == "round 4 of 4 after 8.0 s, train loss 0.25, new mae 2"


def test_a_bar_is_a_callback(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    bar = ProgressBar()
    for _ in range(2):  # once for each fit
        forest().fit(X, Y, callbacks=[bar])
        assert [line.partition(" after")[0] for line in capsys.readouterr().err.splitlines()] == [f"tree {i} of 8" for i in range(1, 9)]
    with caplog.at_level(logging.INFO, logger="dtrees"):
        forest(verbose=1).fit(X, Y, callbacks=[lambda progress: progress.done == 2])
    assert [message.partition(" after")[0] for message in caplog.messages] == ["tree 1 of 8", "tree 2 of 8"]


class Recorded:
    """A display that records its calls."""

    def __init__(self, noted: list[str], unit: str) -> None:
        self._noted = noted
        self._unit = unit

    def begin(self) -> None:
        self._noted.append(f"begin {self._unit}s")

    def compiling(self) -> None:
        self._noted.append("compiling")

    def update(self, progress: Progress) -> None:
        self._noted.append(str(progress.done))

    def end(self) -> None:
        self._noted.append("end")


def test_a_bar_ends_with_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[str] = []
    monkeypatch.setattr(callbacks, "live_display", lambda unit: Recorded(noted, unit))
    with pytest.raises(ValueError, match="NaN"):
        boosting(verbose=1).fit(X, np.full(200, np.nan))
    assert noted == ["begin rounds", "end"]
    noted.clear()
    dtrees.DecisionTreeRegressor().fit(X, Y, callbacks=[ProgressBar()])
    assert noted == ["begin trees", "1", "end"]


def test_a_bar_tells_of_compiling_before_the_first_tree_only(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[str] = []
    monkeypatch.setattr(callbacks, "live_display", lambda unit: Recorded(noted, unit))
    bar = ProgressBar()
    bar.compiling()  # with no fit known yet
    for _ in range(2):
        bar.begin("round")
        bar.compiling()
        bar(ROUNDS[0])
        bar.compiling()
        bar.end()
        bar.compiling()
    assert noted == ["begin rounds", "compiling", "1", "end"] * 2


def interrupting_after(n: int) -> Callable[[Progress], None]:
    def call(progress: Progress) -> None:
        if progress.done == n:
            raise KeyboardInterrupt

    return call


@pytest.mark.parametrize("make", [boosting, forest])
def test_an_interrupted_fit_leaves_the_model_of_before(make: Any) -> None:
    model = make()
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, callbacks=[interrupting_after(3)])
    assert not hasattr(model, "feature_names_in_")
    assert not model.__sklearn_is_fitted__()
    before = model.fit(X, Y).predict(X)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, -Y, callbacks=[interrupting_after(3)])
    assert np.array_equal(model.predict(X), before)


@pytest.mark.parametrize("make", [boosting, forest])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_an_interrupted_fit_keeps_the_trees_so_far(make: Any, checkpoint: bool, tmp_path: Any) -> None:
    options = {"checkpoint": tmp_path / "fit.checkpoint", "checkpoint_interval": 0.0} if checkpoint else {}
    model = make()
    with pytest.warns(UserWarning, match="n_estimators is 3"):
        model.fit(X, Y, callbacks=[KeepOnInterrupt(), interrupting_after(3)], **options)
    expected = make(n_estimators=3).fit(X, Y)
    assert len(model.estimators_) == 3
    assert np.array_equal(model.predict(X), expected.predict(X))
    model.set_params(warm_start=True).fit(X, Y)
    assert np.array_equal(model.predict(X), make().fit(X, Y).predict(X))


def test_what_is_kept_of_boosting_agrees() -> None:
    model = boosting(n_iter_no_change=50, subsample=0.5, eval_metric="mae")
    with pytest.warns(UserWarning, match="n_estimators is 3"):
        model.fit(X, Y, eval_set=[(X, Y)], callbacks=[interrupting_after(3), KeepOnInterrupt()])
    assert model.n_estimators_ == 3
    for scores in (model.train_score_, model.validation_score_, model.oob_improvement_, model.evals_result_["validation_0"]["mae"]):
        assert len(scores) == 3


def test_a_forest_that_was_cut_short_has_no_out_of_bag_scores() -> None:
    model = forest(oob_score=True, warm_start=True)
    with pytest.warns(UserWarning, match="n_estimators is 5"):
        model.fit(X, Y, callbacks=[KeepOnInterrupt(), interrupting_after(5)])
    assert not hasattr(model, "oob_score_")
    assert model.set_params(n_estimators=30).fit(X, Y).oob_score_ == forest(oob_score=True, n_estimators=30).fit(X, Y).oob_score_


def test_nothing_is_kept_before_the_first_tree() -> None:
    def objective(y: Any, raw: Any, weight: Any) -> Any:
        raise KeyboardInterrupt

    model = boosting(loss=objective)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, callbacks=[KeepOnInterrupt()])
    assert not model.__sklearn_is_fitted__()
