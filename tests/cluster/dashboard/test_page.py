"""The page in Dask's dashboard: what it shows, that it is served, and that fits go on without it."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bokeh.client import pull_session
from bokeh.document import Document
from bokeh.models import ColumnDataSource, Div
from distributed import Client, LocalCluster
from sklearn.base import clone

import dtrees
from dtrees.cluster import compat
from dtrees.cluster.dashboard import FitHistory, Page, make_page
from dtrees.cluster.reliability import registry
from tests.cluster.dashboard.test_fit_history import round_event
from tests.cluster.faults import Fault, install
from tests.cluster.samples import FRAME, in_partitions, wait_until
from tests.cluster.samples import REGRESSION as Y
from tests.slow import one_quick


class Worker:
    memory_limit = 2**30

    def __init__(self) -> None:
        self.metrics = {"memory": 2**29}
        self.status = type("Status", (), {"name": "running"})


class Scheduler:
    workers = {"tcp://a:1": Worker()}  # noqa: RUF012


def boosting(key: str = "dtrees-fit-1") -> FitHistory:
    history = FitHistory(key, "GradientBoostingRegressor", "round", state="processing")
    history.take({"what": "placed", "placement": "sharded", "reason": "<it> was asked for"})
    history.take({"what": "holding", "rows": 1000, "columns": 5, "workers": {"tcp://a:1": (3, 600), "tcp://b:2": (2, 400)}})
    history.take(round_event(1))
    shares = {"scan": {"tcp://a:1": 1.0, "tcp://b:2": 0.5}, "wait": {"tcp://a:1": 0.0, "tcp://b:2": 0.5}}
    history.take(round_event(2, **shares, communicate=0.25, sent={"tcp://a:1": 2048}))
    return history


def source_of(page: Page, name: str) -> dict[str, list[Any]]:
    return dict(page._sources[name].data)


def cells(markup: str) -> list[list[str]]:
    """What a table of HTML says, row by row."""
    return [[re.sub("<[^>]*>", "", cell).strip() for cell in re.split("</t[hd]>", row)[:-1]] for row in markup.split("</tr>")[:-1]]


def test_a_fit_under_way_is_shown() -> None:
    page = Page(lambda: [boosting()], Scheduler)
    page.update()
    head, fit = cells(page._list.text)
    told = dict(zip(head, fit, strict=True))
    told.pop("elapsed")
    assert told == {
        "fit": "GradientBoostingRegressor", "key": "dtrees-fit-1", "state": "growing", "progress": "2%", "placement": "sharded",
        "last losses": "train loss 0.5, new mae 2", "done": "2 of 100", "remaining": "0:49", "rows by columns": "1,000 by 5",
        "lost / made up for": "",
    }  # fmt: skip
    curves = source_of(page, "curves")
    assert (curves["name"], curves["xs"], curves["ys"]) == (["train loss", "new mae"], [[1, 2]] * 2, [[1.0, 0.5], [2.0, 2.0]])
    seconds = source_of(page, "workers")
    assert seconds == {"worker": ["a:1", "b:2"], "scan": [1.0, 0.5], "wait": [0.0, 0.5], "communicate": [0.25, 0.25]}
    assert page._seconds.y_range.factors == ["b:2", "a:1"]
    assert cells(page._workers.text)[1:] == [
        ["a:1", "running", "3", "1,000", "600 B", "512.00 MiB / 1.00 GiB", "2.00 kiB", "", "", "1.0 s", "0.2 s", "0.0 s"],
        ["b:2", "gone", "2", "1,000", "400 B", "", "", "", "", "0.5 s", "0.2 s", "0.5 s"],
    ]
    assert "&lt;it&gt; was asked for" in page._heading.text
    assert "<it>" not in page._heading.text + page._lines.text


def test_it_follows_a_fit_and_shows_the_one_that_is_chosen() -> None:
    old = boosting("dtrees-fit-old")
    old.note_state("memory")
    new = FitHistory("dtrees-fit-new", "RandomForestRegressor", "tree", state="processing")
    fits = [new, old]
    page = Page(lambda: fits, Scheduler)
    page.update()
    assert "RandomForestRegressor" in page._heading.text
    assert not page._losses.visible
    page._choice.value = "GradientBoostingRegressor dtrees-fit-old"
    assert "GradientBoostingRegressor" in page._heading.text
    assert page._losses.visible
    fits.insert(0, FitHistory("dtrees-fit-newest"))
    page.update()
    assert "GradientBoostingRegressor" in page._heading.text
    assert len(page._choice.options) == 4
    fits.pop()  # it is so long ago that it is forgotten
    new.take({"what": "tree", "progress": {"done": 3, "total": 4, "seconds": 1.0}})
    page.update()
    assert "newest" in page._heading.text
    page._choice.value = "RandomForestRegressor dtrees-fit-new"
    assert source_of(page, "pace") == {"seconds": [1.0], "done": [3], "zero": [0]}


def test_a_page_before_the_first_fit() -> None:
    document = Document()
    make_page(list, Scheduler, document)
    texts = [div.text for div in document.select({"type": Div})]
    assert any("No fit yet" in text for text in texts)
    assert len(document.session_callbacks) == 1


def read(client: Client, path: str) -> str:
    port = client.scheduler_info()["services"]["dashboard"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        assert answer.status == 200
        return str(answer.read().decode())


def seen(client: Client, workers: bool = True) -> tuple[dict[frozenset[str], Any], list[list[str]], list[list[str]]]:
    """What somebody sees who opens the page: the sources of plots, the fits and the workers of the latest."""
    port = client.scheduler_info()["services"]["dashboard"]
    with pull_session(url=f"http://127.0.0.1:{port}/dtrees") as session:
        sources = {frozenset(source.data): source.data for source in session.document.select({"type": ColumnDataSource})}
        texts = [div.text for div in session.document.select({"type": Div})]
    tables = {table[0][0]: table[1:] for table in map(cells, filter(lambda text: "<table" in text, texts))}
    return sources, tables["fit"], tables["worker"] if workers else []


def test_the_dashboard_of_a_cluster_has_the_page(client: Client) -> None:
    model = dtrees.GradientBoostingRegressor(n_estimators=6).fit(
        in_partitions(FRAME, (200, 220)), in_partitions(Y, (200, 220)), eval_set={"again": (FRAME, Y)}, placement="sharded"
    )
    assert 'href="dtrees"' in read(client, "/status")
    assert 'href="status"' in read(client, "/dtrees")
    sources, fits, workers = seen(client)
    assert fits[0][0] == "GradientBoostingRegressor"
    assert "6 of 6" in fits[0]
    assert "420 by 6" in fits[0]
    (curves,) = (data for names, data in sources.items() if "colour" in names)
    assert next(iter(curves["name"])) == "train loss"
    assert next(np.asarray(curve)[-1] for curve in curves["ys"]) == pytest.approx(model.train_score_[-1])
    assert sum(int(worker[2]) for worker in workers) == 6
    (seconds,) = (data for names, data in sources.items() if "scan" in names)
    assert len(seconds["worker"]) == 3
    assert all(spent > 0 for spent in seconds["scan"])


@pytest.mark.parametrize("placement", one_quick(["replicated", "one-worker", "sharded"]))
def test_forests_are_shown(client: Client, placement: str) -> None:
    model = dtrees.RandomForestRegressor(9).fit(in_partitions(FRAME, (200, 220)), in_partitions(Y, (200, 220)), placement=placement)
    sources, fits, workers = seen(client)
    assert fits[0][:1] + fits[0][2:5] == ["RandomForestRegressor", "finished", "100%", placement]
    holding = [worker for worker in workers if worker[2]]
    assert len(holding) == len(model.placement_.workers)
    assert all(int(worker[2]) == (2 if placement == "sharded" else 6) and worker[4] and worker[5] for worker in holding)
    assert sum(int(worker[8] or 0) for worker in workers) == (0 if placement == "sharded" else 9)
    (pace,) = (data for names, data in sources.items() if "zero" in names)
    assert pace["done"][-1] == 9


@pytest.mark.slow
def test_a_killed_worker_is_shown(mortal_client: Client, tmp_path: Path) -> None:
    """It is lost, another one has its columns, and the fit is that of an undisturbed one; all of it is on the page."""
    install(mortal_client, Fault(tmp_path, "Advance", at=12))
    model = dtrees.GradientBoostingRegressor(n_estimators=6, random_state=0)
    model.fit(in_partitions(FRAME, (200, 220)), in_partitions(Y, (200, 220)), placement="sharded")
    _, fits, workers = seen(mortal_client)
    assert "1 / 1" in fits[0]
    (lost,) = (worker for worker in workers if worker[1] == "lost")
    assert lost[2:4] == ["", ""]
    assert sum(int(worker[2]) for worker in workers if worker != lost) == 6
    port = mortal_client.scheduler_info()["services"]["dashboard"]
    with pull_session(url=f"http://127.0.0.1:{port}/dtrees") as session:
        said = " ".join(div.text for div in session.document.select({"type": Div}))
    assert f"lost tcp://{lost[0]}" in said
    assert "columns of a lost worker are loaded again on" in said
    assert "goes on from round" in said
    np.testing.assert_array_equal(model.predict(FRAME), clone(model).fit(FRAME, Y).predict(FRAME))


@pytest.mark.slow
def test_fits_go_on_where_the_dashboard_is_off(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_said", set())
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster, Client(cluster):
        for _ in range(2):
            dtrees.submit(dtrees.DecisionTreeRegressor(), FRAME, Y).result()
    said = [message for message in caplog.messages if "There is no page of dtrees in Dask's dashboard" in message]
    assert len(said) == 1
    assert "the scheduler has no dashboard" in said[0]


def test_a_dashboard_of_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    class Application:
        app_paths = ("/status",)

    scheduler = type("Scheduler", (), {"http_application": type("Routes", (), {"applications": [Application()]})()})()
    with pytest.raises(compat.NoDashboard, match=r"the dashboard of distributed .* does not take it \(AttributeError"):
        compat.add_dashboard_page(scheduler, "dtrees", lambda document: None)
    Application.app_paths = ("/status", "/dtrees")
    compat.add_dashboard_page(scheduler, "dtrees", lambda document: None)  # it is there


@pytest.mark.slow
def test_a_fit_whose_client_has_left(cluster_of_3: LocalCluster, tmp_path: Path) -> None:
    go_on = tmp_path / "go on"

    def wait_for_word(progress: dtrees.callbacks.Progress) -> None:
        if progress.done == 2:
            wait_until(go_on.exists, 120)

    with Client(cluster_of_3, set_as_default=False) as client:
        X, y = in_partitions(FRAME, (200, 220)), in_partitions(Y, (200, 220))
        model = dtrees.GradientBoostingRegressor(n_estimators=4)
        key = dtrees.submit(model, X, y, client=client, detached=True, callbacks=[wait_for_word]).key
    with Client(cluster_of_3, set_as_default=False) as client:
        wait_until(lambda: shown_of(client, key)[0] == "growing")
        assert shown_of(client, key)[4] == "2 of 4"
        go_on.touch()
        wait_until(lambda: shown_of(client, key)[0] == "finished")
        assert dtrees.attach(key, client=client, take_over=True).result().n_estimators_ == 4


def shown_of(client: Client, key: str) -> list[str]:
    """What the list of fits says of one, from its state on."""
    _, fits, _ = seen(client, workers=False)
    return next((fit[2:] for fit in fits if fit[1] == key), ["unknown"])


def test_malformed_events_are_left_aside() -> None:
    """Anybody may log on the topic: the scheduler takes no harm."""
    with LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster, Client(cluster) as client:
        future = dtrees.submit(dtrees.RandomForestRegressor(2), FRAME, Y)
        dtrees.progress(future)
        for fit in (future.key, [future.key], None, {"a": 1}):
            for event in ({"what": "round"}, {"what": "round", "progress": {}}, {"what": ["round"]}, {"what": "shards lost", "workers": 3}):
                client.log_event("dtrees", {**event, "fit": fit})
        client.log_event("dtrees", "text")
        assert [fit[1] for fit in seen(client, workers=False)[1]] == [future.key]


def test_rows_of_each_worker_and_why_a_fit_failed() -> None:
    history = FitHistory("dtrees-fit-1", "GradientBoostingRegressor", "round", label="<a trial>", state="processing")
    held = {"tcp://a:1": (5, 600), "tcp://b:2": (5, 400)}
    history.take({"what": "holding", "rows": 1000, "columns": 5, "workers": held, "rows_of": {"tcp://a:1": 700, "tcp://b:2": 300}})
    history.note_state("erred", "ValueError('y contains <NaN>')")
    page = Page(lambda: [history], Scheduler)
    page.update()
    assert [row[2:4] for row in cells(page._workers.text)[1:]] == [["5", "700"], ["5", "300"]]
    assert "failed, ValueError(&#x27;y contains &lt;NaN&gt;&#x27;)" in page._heading.text
    assert "failed: ValueError" in page._lines.text
    assert re.search(r"time zone [+-]\d\d:\d\d", page._lines.text)
    assert cells(page._list.text)[1][0] == "&lt;a trial&gt; (GradientBoostingRegressor)"
