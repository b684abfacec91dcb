"""A second process that compiles kernels."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtrees.split.compile import helper


def touch(path: str) -> None:
    """Write a file; the helper calls it."""
    Path(path).touch()


def fail() -> None:
    """Raise an error, in the helper."""
    raise RuntimeError


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    helper.stop_helper()
    monkeypatch.setattr(helper, "_allowed", True)
    monkeypatch.setattr(helper, "_is_possible", lambda: True)
    yield
    helper.stop_helper()


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.05)


def test_work_is_done_elsewhere(tmp_path: Path) -> None:
    helper.compile_elsewhere(fail)
    helper.compile_elsewhere(touch, str(tmp_path / "done"))
    wait_for(tmp_path / "done")
    running = helper._helper
    assert running is not None
    assert running.poll() is None
    helper.stop_helper()
    assert running.poll() is not None


def test_a_helper_that_is_gone_does_no_harm(tmp_path: Path) -> None:
    helper.compile_elsewhere(touch, str(tmp_path / "done"))
    wait_for(tmp_path / "done")
    assert helper._helper is not None
    helper._helper.kill()
    helper._helper.wait()
    for _ in range(3):
        helper.compile_elsewhere(touch, str(tmp_path / "not done"))


@pytest.mark.parametrize("reason", ["not allowed", "not possible"])
def test_no_helper(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    if reason == "not allowed":
        monkeypatch.setattr(helper, "_allowed", False)
    else:
        monkeypatch.setattr(helper, "_is_possible", lambda: False)
    helper.compile_elsewhere(fail)
    assert helper._helper is None


def test_one_processor_has_no_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(helper.os, "sched_getaffinity", lambda pid: {0}, raising=False)
    assert not helper._is_possible()
