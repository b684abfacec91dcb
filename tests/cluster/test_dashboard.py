"""The state of fits as derived from their events, bounded and correct in all cases, and the page of Dask's dashboard that shows it."""

import pickle
import re
import urllib.request
from dataclasses import asdict
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
from dtrees.callbacks import Progress
from dtrees.cluster import compat
from dtrees.cluster.dashboard import Curve, FitHistory, Page, make_page
from dtrees.cluster.reliability import registry
from tests.cluster.faults import Fault, install
from tests.cluster.samples import FRAME, in_partitions, wait_until
from tests.cluster.samples import REGRESSION as Y
from tests.slow import one_quick

# --- the state of a fit: bounded, and correct whatever happens to the fit ---


def round_event(done: int, total: int = 100, **facts: Any) -> dict[str, Any]:
    progress = Progress(done, total, 10.0 + 0.5 * done, train_score=1.0 / done, evaluation={"new": {"mae": 2.0}})
    return {"fit": "fit", "what": "round", "round": done, "progress": asdict(progress), **facts}


def test_a_curve_is_bounded() -> None:
    curve = Curve()
    for done in range(1, 100_001):
        curve.add(done, float(done))
    points = curve.shown()
    assert 200 <= len(points) <= 401
    assert points[0][0] == 1
    assert points[-1] == (100_000, 100_000.0)
    assert all(x == y for x, y in points)
    assert sorted(points) == points


def test_rounds_that_come_again_replace_those_before() -> None:
    curve = Curve()
    for done in (1, 2, 3, 4, 2, 3):
        curve.add(done, 10.0 * done)
    assert curve.shown() == [(1, 10.0), (2, 20.0), (3, 30.0)]


def test_a_fit_from_its_beginning_to_its_end() -> None:
    history = FitHistory("fit")
    assert history.outcome == "waiting"
    history.note_state("processing")
    history.take({"what": "began", "turn": 1, "worker": "a"})
    assert history.outcome == "loading"
    history.take({"what": "placed", "placement": "sharded", "reason": "it was asked for", "workers": ["a", "b"], "bytes": 1})
    history.take({"what": "holding", "rows": 1000, "columns": 5, "workers": {"a": (3, 600), "b": (2, 400)}})
    history.take(round_event(1, scan={"a": 1.0, "b": 0.5}, wait={"a": 0.0, "b": 0.5}, sent={"a": 10}, received={"b": 20}, communicate=0.25))
    assert history.remaining is None
    history.take(round_event(3))
    assert history.outcome == "growing"
    assert history.remaining == pytest.approx(0.5 * 97)
    assert history.curves["train loss"].shown() == [(1, 1.0), (3, 1.0 / 3)]
    assert set(history.curves) == {"train loss", "new mae"}
    assert [(share.columns, share.bytes, share.scan) for share in history.workers.values()] == [(3, 600, 1.0), (2, 400, 0.5)]
    assert (history.workers["b"].wait, history.workers["a"].sent, history.workers["b"].received, history.communicate) == (0.5, 10, 20, 0.25)
    assert history.snapshot()["progress"]["done"] == 3
    history.note_state("memory")
    assert history.outcome == "finished"
    history.note_state("released")
    history.note_state("forgotten")
    assert history.outcome == "finished"
    assert history.remaining is None


def test_a_fit_that_waits_for_kernels_says_so() -> None:
    compiling: set[str] = set()
    history = FitHistory("fit", compiling=compiling)
    compiling.add("a")
    assert history.outcome == "waiting"
    history.note_state("processing")
    assert history.outcome == history.snapshot()["outcome"] == "compiling kernels (first use)"
    compiling.clear()
    assert history.outcome == "loading"
    compiling.add("b")  # another kernel, or another fit
    history.take(round_event(1))
    assert history.outcome == "growing"


def test_lost_workers_are_counted_once_and_replaced() -> None:
    history = FitHistory("fit", "GradientBoostingRegressor", "round")
    history.take({"what": "holding", "rows": 10, "columns": 2, "workers": {"a": (1, 1), "b": (1, 1)}})
    history.take(round_event(1))
    history.lose(["elsewhere"])
    assert history.n_lost == 0
    history.lose(["b"])
    history.take({"what": "shards lost", "shards": [1], "workers": ["b"]})
    assert (history.n_lost, history.n_recovered) == (1, 0)
    history.take({"what": "shard moved", "shard": 1, "to": "a"})
    history.take({"what": "holding", "rows": 10, "columns": 2, "workers": {"a": (2, 2)}})
    history.take(round_event(2))
    assert (history.n_lost, history.n_recovered) == (1, 1)
    assert (history.workers["b"].lost, history.workers["b"].columns, history.workers["a"].columns) == (True, 0, 2)
    history.take({"what": "placed", "placement": "rows", "reason": "as asked", "workers": ["a"], "bytes": {}})
    history.take({"what": "shard moved", "shard": 1, "to": "a"})
    said = ["lost b", "columns of a lost worker are loaded again on a", "goes on from round 2", "placed rows: as asked"]
    assert [line for _, line in history.lines] == [*said, "rows of a lost worker are loaded again on a"]


def test_messages_count_for_workers_that_were_there() -> None:
    history = FitHistory("fit", "GradientBoostingRegressor", "round")
    history.take(round_event(1, scan={"a": 1.0, "b": 1.0}, communicate=0.5))
    history.lose(["b"])
    history.take(round_event(2, scan={"a": 2.0, "b": 1.0, "c": 0.5}, communicate=4.0))
    history.take(round_event(3, scan={"a": 3.0, "b": 1.0, "c": 1.5}, communicate=5.0))
    assert {worker: share.communicate for worker, share in history.workers.items()} == {"a": 5.0, "b": 0.5, "c": 1.0}
    history.take(round_event(3, scan={"a": 0.5, "c": 0.5}, communicate=0.25))  # taken over by another coordinator
    assert {worker: share.communicate for worker, share in history.workers.items()} == {"a": 5.25, "b": 0.5, "c": 1.25}


@pytest.mark.parametrize(("states", "outcome"), [(("erred",), "failed"), (("processing", "released", "forgotten"), "cancelled")])
def test_fits_that_end_otherwise(states: tuple[str, ...], outcome: str) -> None:
    history = FitHistory("fit")
    for state in states:
        history.note_state(state)
    assert history.outcome == outcome


def test_batches_of_a_forest_add_up() -> None:
    history = FitHistory("fit")
    for seconds in (1.0, 2.0):
        history.take({"what": "batch", "worker": "a", "seconds": seconds, "trees": 4})
    assert (history.workers["a"].scan, history.workers["a"].trees) == (3.0, 8)


def test_it_stays_small() -> None:
    history = FitHistory("fit")
    for done in range(1, 5000):
        progress = Progress(done, 5000, float(done), evaluation={f"set {i}": {"mae": 1.0} for i in range(30)})
        history.take({"what": "round", "progress": asdict(progress)})
        history.take({"what": "shard moved", "to": "somewhere"})
        history.take({"what": "something new"})
    assert len(pickle.dumps(history)) < 200_000


# --- the page in Dask's dashboard: its content, its URL, and fits that continue without it ---


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
    """Return the cells of an HTML table, row by row."""
    return [[re.sub("<[^>]*>", "", cell).strip() for cell in re.split("</t[hd]>", row)[:-1]] for row in markup.split("</tr>")[:-1]]


def test_a_fit_under_way_is_shown() -> None:
    page = Page(lambda: [boosting()], Scheduler)
    page.update()
    head, fit = cells(page._list.text)
    shown = dict(zip(head, fit, strict=True))
    shown.pop("elapsed")
    assert shown == {
        "fit": "GradientBoostingRegressor", "key": "dtrees-fit-1", "state": "growing", "progress": "2%", "placement": "sharded",
        "last losses": "train loss 0.5, new mae 2", "done": "2 of 100", "remaining": "0:49", "rows by columns": "1,000 by 5",
        "lost / replaced": "",
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
    fits.pop()  # so old that it has been removed
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
    """Return what a user of the page sees: the sources of plots, the fits and the workers of the latest."""
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
    """The page shows that it is lost, that another one has its columns, and that the fit equals an undisturbed one."""
    install(mortal_client, Fault(tmp_path, "marks", at=12))
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
    monkeypatch.setattr(registry, "_logged", set())
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
    compat.add_dashboard_page(scheduler, "dtrees", lambda document: None)  # it exists already


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
    """Return the cells of a fit in the list of fits, from its state on."""
    _, fits, _ = seen(client, workers=False)
    return next((fit[2:] for fit in fits if fit[1] == key), ["unknown"])


def test_malformed_events_are_left_aside() -> None:
    """Anyone may log on the topic: the scheduler is not affected."""
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
