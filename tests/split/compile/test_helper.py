"""A second process that compiles kernels."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtrees.split.compile import helper
from dtrees.split.compile.kernels import lean_entry


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


@lean_entry
def double(x):  # type: ignore[no-untyped-def]
    """A kernel that the helper compiles."""
    return 2.0 * x


def test_a_kernel_compiled_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said to be under way until it is compiled, ordered once, and found on disk then."""
    orders = []
    order = helper.compile_elsewhere
    monkeypatch.setattr(helper, "compile_elsewhere", lambda *arguments: (orders.append(arguments), order(*arguments)))
    while helper.compiled_elsewhere(double, 1.0):
        time.sleep(0.05)
    assert len(orders) <= 1
    assert double(4.0) == 8.0


@pytest.mark.parametrize("how", ["it is killed", "it fails"])
def test_a_kernel_that_a_helper_cannot_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str) -> None:
    """Nobody waits for it for ever."""
    monkeypatch.setattr(helper, "is_compiled", lambda kernel, types: False)
    if how == "it fails":
        monkeypatch.setattr(helper, "compile_kernel", fail)
    assert helper.compiled_elsewhere(double, 1.0)
    assert helper._helper is not None
    if how == "it is killed":
        helper._helper.kill()
    while helper.compiled_elsewhere(double, 1.0):
        time.sleep(0.05)


def test_a_helper_finishes_its_work(tmp_path: Path) -> None:
    """Also when the process that gave it has ended."""
    program = f"""
from dtrees.split.compile import helper
from dtrees.split.compile.kernels import lean_entry
from tests.split.compile.test_helper import touch
helper.allow_helper()
for name in ("first", "second", "third"):
    helper.compile_elsewhere(touch, {str(tmp_path)!r} + "/" + name)
while not helper._done:
    pass
"""
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", program], cwd=root, env=os.environ | {"DTREES_HELPER": "1", "PYTHONPATH": str(root)}, check=True)
    wait_for(tmp_path / "third")


@pytest.mark.parametrize("reason", ["not allowed", "not possible", "not wanted"])
def test_no_helper(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    if reason == "not allowed":
        monkeypatch.setattr(helper, "_allowed", False)
    elif reason == "not possible":
        monkeypatch.setattr(helper, "_is_possible", lambda: False)
    else:
        monkeypatch.undo()
        monkeypatch.setattr(helper, "_allowed", True)
        assert not helper._is_possible()
    helper.compile_elsewhere(fail)
    assert helper._helper is None


def test_one_processor_has_no_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("DTREES_HELPER", "1")
    monkeypatch.setattr(helper.os, "sched_getaffinity", lambda pid: {0}, raising=False)
    assert not helper._is_possible()
