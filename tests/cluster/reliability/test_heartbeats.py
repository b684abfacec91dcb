"""How long workers are silent, and when a fit does without them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dtrees.cluster.reliability.registry import Heartbeats


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A clock that goes on when it is told to."""
    now = 100.0

    def wait(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("dtrees.cluster.reliability.registry.time.monotonic", lambda: now)
    return wait


def test_silence(wait: Callable[[float], None]) -> None:
    heartbeats = Heartbeats(patience=30.0)
    heartbeats.note({"a": 1.0, "b": 1.0})  # by a clock of its own
    for i in range(16):
        assert not heartbeats.silent
        wait(2.0)
        heartbeats.note({"a": 2.0 + i, "b": 1.0})
    assert heartbeats.silent == {"b": 32.0}
    assert heartbeats.n_departed == 1
    heartbeats.note({"a": 20.0})
    assert not heartbeats.silent
    assert heartbeats.n_departed == 1


def test_a_silent_worker_counts_again_when_it_is_heard(wait: Callable[[float], None]) -> None:
    heartbeats = Heartbeats(patience=10.0)
    for _ in range(9):
        heartbeats.note({"a": 1.0})
        wait(2.0)
    assert heartbeats.silent.keys() == {"a"}
    patience = heartbeats.patience
    heartbeats.note({"a": 2.0})
    assert not heartbeats.silent
    assert heartbeats.patience == patience


@pytest.mark.parametrize("left", [{}, {"a": 1.0}])
def test_no_workers_but_silent_ones(wait: Callable[[float], None], left: dict[str, float]) -> None:
    heartbeats = Heartbeats(patience=10.0)
    heartbeats.note({"a": 1.0})
    for _ in range(20):
        wait(2.0)
        assert not heartbeats.all_lost or heartbeats.silent == {} == left or heartbeats.silent["a"] > 20.0
        heartbeats.note(left)
    assert heartbeats.all_lost


def test_who_listens_is_not_silent(wait: Callable[[float], None]) -> None:
    heartbeats = Heartbeats(patience=10.0)
    for _ in range(20):
        heartbeats.note({"a": 1.0, "b": 1.0}, own="a")
        wait(2.0)
    assert heartbeats.silent.keys() == {"b"}
    assert not heartbeats.all_lost


@pytest.mark.parametrize("patience", [1.0, 30.0])
def test_no_worker_is_to_blame_for_the_time_this_process_stood_still(wait: Callable[[float], None], patience: float) -> None:
    heartbeats = Heartbeats(patience)
    heartbeats.note({"a": 1.0})
    wait(1000.0)
    heartbeats.note({"a": 1.0})
    assert not heartbeats.silent


def test_patience_grows_where_workers_are_slow(wait: Callable[[float], None]) -> None:
    heartbeats = Heartbeats(patience=10.0)
    for last_seen in (1.0, 1.0, 1.0, 1.0, 1.0, 2.0):
        heartbeats.note({"a": last_seen})
        wait(2.0)
    assert heartbeats.patience == 32.0


def test_patience_grows_with_workers_that_fall_silent(wait: Callable[[float], None]) -> None:
    heartbeats = Heartbeats(patience=10.0)
    grown = []
    for when in range(4):
        while not heartbeats.silent:
            heartbeats.note({"a": float(when)})
            wait(2.0)
        grown.append(heartbeats.patience)
        heartbeats.note({"a": when + 0.5})
    assert grown == [15.0, 22.5, 30.0, 30.0]
