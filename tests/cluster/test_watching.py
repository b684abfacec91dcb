"""Fits on a cluster, as users watch and interrupt them."""

import atexit
import gc
import logging.handlers
import os
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster, get_worker

import dtrees
from dtrees import KeepOnInterrupt, ProgressBar
from dtrees.callbacks import Progress, local_callback
from dtrees.cluster.dashboard import FitHistory
from dtrees.cluster.growing.kernel_shipping import _ask_scheduler, share_kernels
from dtrees.cluster.growing.watching import _Watching
from dtrees.cluster.transport.clients import own_client
from dtrees.errors import ClusterError
from tests.cluster.samples import FRAME, assert_clean, assert_same_model, numbers, training_set, wait_until
from tests.cluster.samples import REGRESSION as Y
from tests.slow import one_quick

pytestmark = pytest.mark.timeout(180)


def boosting(n_estimators: int = 5, **parameters: Any) -> Any:
    return dtrees.GradientBoostingRegressor(n_estimators=n_estimators, random_state=3, **parameters)


def interrupt_after_3(progress: Progress) -> None:
    """Simulate Ctrl-C."""
    if progress.done == 3:
        os.kill(os.getpid(), signal.SIGINT)


def lines(capfd: pytest.CaptureFixture[str]) -> list[str]:
    return [line.partition(" after")[0] for line in capfd.readouterr().err.splitlines() if line.startswith(("round ", "tree "))]


@pytest.mark.parametrize("in_memory", one_quick([False, True]))
def test_submitted_fits_are_watched(client: Client, capfd: pytest.CaptureFixture[str], in_memory: bool) -> None:
    future = dtrees.submit(boosting(), *((FRAME, Y) if in_memory else training_set()))
    assert dtrees.progress(future) is None
    assert future.status == "finished"
    assert lines(capfd)[-1] == "round 5 of 5"
    dtrees.progress(future.key)  # finished
    assert lines(capfd) == ["round 5 of 5"]
    key = future.key
    del future
    assert_clean(client)
    dtrees.progress(key)  # removed
    assert lines(capfd) == ["round 5 of 5"]


def test_watching_tells_of_compiling(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    history = FitHistory("fit", unit="round", compiling={"a worker"})
    history.note_state("processing")
    watching = _Watching("fit")
    assert watching.goes_on([history.snapshot()])
    assert watching.goes_on([history.snapshot()])
    history.take({"what": "round", "progress": asdict(Progress(1, 2, 0.5))})
    assert watching.goes_on([history.snapshot()])
    assert capsys.readouterr().err.splitlines() == ["compiling kernels (first use)", "round 1 of 2 after 0.5 s"]


def waits_for_kernels(rows: pd.DataFrame) -> pd.DataFrame:
    """Request a kernel like a worker that has not compiled it, in the task that computes a partition."""
    share_kernels()
    _ask_scheduler(own_client(), get_worker().address, "version", f"kernel {uuid4().hex}", None)
    return rows


@pytest.mark.parametrize("verbose", one_quick([0, 1]))
def test_a_bar_tells_of_compiling_until_there_is_a_tree(client: Client, capfd: pytest.CaptureFixture[str], verbose: int) -> None:
    X, y = training_set()
    model = dtrees.RandomForestRegressor(4, verbose=verbose)
    model.fit(X.map_partitions(waits_for_kernels, meta=X._meta), y, callbacks=[] if verbose else [ProgressBar()])
    shown = [line.partition(" after")[0] for line in capfd.readouterr().err.splitlines()]
    assert [line for line in shown if line.startswith(("compiling", "tree"))] == [
        "compiling kernels (first use)", *(f"tree {i} of 4" for i in range(1, 5))
    ]  # fmt: skip


def test_watching_tells_how_a_fit_ended(client: Client, capfd: pytest.CaptureFixture[str]) -> None:
    X, _ = training_set()
    future = dtrees.submit(boosting(), X, da.full(len(FRAME), np.nan, chunks=100))
    dtrees.progress(future)
    assert future.status == "error"
    said = capfd.readouterr().err
    assert f"the fit {future.key} failed: ValueError('y" in said
    (found,) = [fit for fit in dtrees.fits(client) if fit.key == future.key]
    assert found.state == "failed"
    assert found.failure in said
    future = dtrees.submit(boosting(10**6), *training_set())
    key = future.key
    wait_until(lambda: any(fit.key == key and fit.done for fit in dtrees.fits(client)))
    future.cancel()
    dtrees.progress(key, client=client)
    assert f"the fit {key} was cancelled" in capfd.readouterr().err


def loses_a_worker(progress: Progress) -> None:
    """Report a lost worker to the records of fits, as for one that is lost."""

    def lose(dask_scheduler: Any) -> None:
        fits = dask_scheduler.plugins["dtrees-fits"]
        (history,) = [history for history in fits.histories() if not history.is_over]
        fits.remove_worker(dask_scheduler, worker=min(history.workers))

    if progress.done == 2:
        own_client().run_on_scheduler(lose)


def test_verbose_tells_of_lost_workers(client: Client, capfd: pytest.CaptureFixture[str]) -> None:
    boosting(verbose=1).fit(*training_set(), callbacks=[loses_a_worker], placement="sharded")
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith(("lost tcp://", "goes on from round"))]
    assert len(said) == 2
    future = dtrees.submit(boosting(), *training_set(), callbacks=[loses_a_worker], placement="sharded")
    dtrees.progress(future)
    assert "lost tcp://" in capfd.readouterr().err


def test_what_cannot_be_watched(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtrees.cluster.growing.watching._SECONDS_TO_BE_KNOWN", 0.0)
    with pytest.raises(KeyError, match="has no fit 'dtrees-fit-0'"):
        dtrees.progress("dtrees-fit-0")
    with pytest.raises(TypeError, match=r"fit is 3; wants a future of dtrees\.submit"):
        dtrees.progress(3)
    with pytest.raises(TypeError, match=r"callbacks has a ProgressBar.*dtrees\.progress\(future\)"):
        dtrees.submit(boosting(), *training_set(), callbacks=[ProgressBar()])


@pytest.mark.slow
async def test_watching_by_an_asynchronous_client(cluster_of_3: LocalCluster, capfd: pytest.CaptureFixture[str]) -> None:
    async with Client(cluster_of_3.scheduler_address, asynchronous=True, set_as_default=False) as client:
        future = dtrees.submit(boosting(), FRAME, Y, client=client)
        await dtrees.progress(future)
        assert (await future).n_estimators_ == 5
        with pytest.raises(ClusterError, match="asynchronous"):
            boosting().fit(FRAME, Y, client=client)
    assert lines(capfd)[-1] == "round 5 of 5"


@pytest.mark.parametrize("placement", one_quick(["one-worker", "sharded"]))
def test_ctrl_c_keeps_what_was_finished(client: Client, placement: str) -> None:
    model = boosting(100_000)
    kept = pytest.warns(UserWarning, match="the fit was interrupted, and KeepOnInterrupt keeps what was finished")
    with local_callback(interrupt_after_3) as press, kept:
        model.fit(*training_set(), callbacks=[KeepOnInterrupt(), press], placement=placement)
    assert 3 <= model.n_estimators_ < 100_000
    assert model.placement_.kind == placement
    expected = boosting(model.n_estimators_).fit(FRAME, Y)
    assert np.array_equal(model.predict(FRAME), expected.predict(FRAME))
    assert_clean(client)


def test_ctrl_c_ends_a_fit(client: Client) -> None:
    model = boosting(100_000)
    with local_callback(interrupt_after_3) as press, pytest.raises(KeyboardInterrupt):
        model.fit(*training_set(), callbacks=[press])
    assert not model.__sklearn_is_fitted__()
    assert_clean(client)


def test_fits_are_placed(cluster_of_3: LocalCluster) -> None:
    """Without a current client, it is passed as an argument."""
    with Client(cluster_of_3, set_as_default=False) as client:
        model = boosting().fit(*training_set(), client=client, placement="sharded")
        assert model.placement_.kind == "sharded"
        assert_same_model(boosting().fit(FRAME, Y, client=client), boosting().fit(FRAME, Y))
        with pytest.raises(ValueError, match="placement is 'sharded', but X is a DataFrame in memory, which one worker fits"):
            boosting().fit(FRAME, Y, client=client, placement="sharded")
    with pytest.raises(ValueError, match="placement is 'sharded', but X is a ndarray in memory, which is fitted in this process"):
        boosting().fit(numbers(FRAME), Y, placement="sharded")
    with pytest.raises(ValueError, match="placement is 'sharded', but there is no Dask client"):
        boosting().fit(*training_set(), placement="sharded")


def test_clients_that_fit_cannot_use(client: Client) -> None:
    for X in (FRAME, training_set()[0]):
        with pytest.raises(TypeError, match=r"client is 'tcp://somewhere'; wants a distributed\.Client"):
            dtrees.DecisionTreeRegressor().fit(X, Y, client="tcp://somewhere")


def test_workers_do_not_log_what_the_user_is_told(client: Client) -> None:
    """Bad data fails in every partition; the error is raised here, in one line."""

    def listen(dask_worker: Any) -> None:
        dask_worker.heard = logging.handlers.BufferingHandler(10**6)
        logging.getLogger("distributed.worker").addHandler(dask_worker.heard)

    def heard(dask_worker: Any) -> list[str]:
        logging.getLogger("distributed.worker").removeHandler(dask_worker.heard)
        return [record.getMessage() for record in dask_worker.heard.buffer]

    X, y = training_set()
    client.run(listen)
    for model in (boosting(), dtrees.RandomForestRegressor(4)):
        with pytest.raises(ValueError, match="y contains NaN"):
            model.fit(X, y * np.nan)
    with pytest.raises(ZeroDivisionError):  # an error of other code
        client.submit(lambda: 1 / 0).result()
    (said,) = [line for lines in client.run(heard).values() for line in lines if "Compute Failed" in line]
    assert "ZeroDivisionError" in said


@pytest.mark.slow
def test_workers_end_without_a_last_collection(tmp_path: Path) -> None:
    """After the imports of a fit it takes so long that nannies kill workers."""

    def note() -> None:
        atexit.register(lambda: (tmp_path / "frozen").write_text(str(gc.get_freeze_count())))

    started = dask.config.set({"distributed.worker.multiprocessing-method": "spawn"})  # forked processes run no functions of atexit
    with started, LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        client.run(note)
        dtrees.RandomForestRegressor(2).fit(*training_set())
    wait_until((tmp_path / "frozen").exists, 10)
    assert int((tmp_path / "frozen").read_text()) > 0
