"""Fits over shards that go on until they are told to end, and workers that join them meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
from distributed import Client, get_worker

import dtrees
from dtrees.cluster.growing.shards import worker_shards as executor
from dtrees.cluster.growing.shards.joining import newcomers, rows
from tests.cluster.clusters import process
from tests.cluster.samples import LENGTHS, assert_clean, assert_same_model, events, in_partitions, table, targets, wait_until, weights

FRAME, WEIGHTS = table(), weights()
TARGETS = targets(FRAME)


def hasten() -> None:
    """Have this process look for newcomers often."""
    executor._SECONDS_BETWEEN_CENSUSES = 0.3
    newcomers._SECONDS_TO_SETTLE = 0.5
    rows.seconds_beside_rows = lambda n_workers: 0.0  # or the small tables of tests would be left to few


def lose_at(module: Any, name: str, marker: Path, number: signal.Signals) -> None:
    """Have this worker get a signal when it is to carry out a task's function, unless it is the coordinator's, or one has had it.

    ``marker`` is written then, and says which process it was.
    """
    original = getattr(module, name)

    def lost(*args: Any) -> Any:
        if not any(str(key).startswith("dtrees-fit-") for key in get_worker().state.tasks):
            with contextlib.suppress(FileExistsError):
                place = os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
                os.write(place, str(os.getpid()).encode())
                os.close(place)
                os.kill(os.getpid(), number)
        return original(*args)

    lost.__module__, lost.__qualname__ = original.__module__, original.__qualname__
    setattr(module, name, lost)


@contextlib.contextmanager
def joining(client: Client) -> Iterator[str]:
    """A worker that joins, for as long as the block lasts: its address."""
    before = set(client.nthreads())
    with process("dask_worker", client.scheduler.address, "--no-nanny", "--nthreads", "1"):
        wait_until(lambda: len(client.nthreads()) == len(before) + 1, 120)
        (address,) = set(client.nthreads()) - before
        yield address


class Running:
    """A fit over shards that goes on until it is told to end; it may be held between two trees meanwhile.

    ``make`` makes a model of so many rounds or trees. ``pause``: seconds between two trees, or workers that start would have no processor.
    What else there is are options of ``fit``.
    """

    def __init__(
        self,
        client: Client,
        task: str,
        make: Callable[[int], Any],
        folder: Path,
        *,
        placement: str = "sharded",
        lengths: list[int] = LENGTHS[3],
        weighted: bool = False,
        n_trees: int = 10**5,
        pause: float = 0.03,
        **options: Any,
    ) -> None:
        self.client = client
        self._end, self._hold, self._held = folder / "end", folder / "hold", folder / "held"
        self._task, self._make, self._weight = task, make, WEIGHTS if weighted else None
        self._pause, self._options = pause, options
        client.run(hasten)
        X, y = in_partitions(FRAME, lengths), in_partitions(TARGETS[task], lengths)
        weight = None if self._weight is None else in_partitions(self._weight, lengths)
        with dask.config.set({"dtrees.placement": placement, "dtrees.patience": 8.0}):
            self.future = dtrees.submit(make(n_trees), X, y, weight, callbacks=[self._callback()], **options)
        self.goes_on()

    def _callback(self) -> Callable[[Any], bool]:
        end, hold, held, pause = self._end, self._hold, self._held, self._pause

        def callback(progress: Any) -> bool:
            time.sleep(pause)
            if hold.exists():
                held.touch()
                wait_until(lambda: not hold.exists())
            return end.exists()

        return callback

    def events(self, what: str) -> list[dict[str, Any]]:
        return events(self.client, what, self.future.key)

    def goes_on(self) -> None:
        """Wait for further exchanges."""
        last = [event["seconds"] for event in self.events("exchange")[-1:]]
        wait_until(lambda: [event["seconds"] for event in self.events("exchange")[-1:]] != last)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold it for as long as the block lasts."""
        self._hold.touch()
        wait_until(self._held.exists)
        yield
        self._hold.unlink()

    def shards(self) -> int:
        """The most shards of one of the latest messages."""
        return max(event["n_shards"] for event in self.events("exchange")[-20:])

    def end(self) -> Any:
        """End it; return the model."""
        self._end.touch()
        return self.future.result(timeout=60)

    def finish(self, *, in_processes: bool = True) -> None:
        """End it, and check the model."""
        fitted = self.end()
        self.check(fitted, self._make(len(fitted._trees.groups[0])), in_processes=in_processes)

    def check(self, fitted: Any, bare: Any, *, in_processes: bool = True) -> None:
        """Check a model against one that is not fitted yet, and that nothing is left behind."""
        assert_same_model(fitted, bare.fit(FRAME, TARGETS[self._task], self._weight, **self._options))
        self.future.release()
        assert_clean(self.client, in_processes=in_processes)
