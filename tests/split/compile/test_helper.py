"""A helper process that compiles kernels."""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from numba import float64

from dtrees.split.compile import cache, helper
from dtrees.split.compile.kernels import lean_entry

ROOT = Path(__file__).parents[3]


def touch(path: str) -> None:
    """Write a file; the helper calls it."""
    Path(path).touch()


def fail() -> None:
    """Raise an error, in the helper."""
    raise RuntimeError


def wait_until_killed() -> None:
    """Keep the helper busy."""
    time.sleep(60)


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Yield a cache folder without a helper, of this test process or another."""
    place = tmp_path / "cache"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(place))
    monkeypatch.setattr(cache.config, "CACHE_DIR", str(place))
    monkeypatch.setenv("DTREES_HELPER", "1")
    monkeypatch.setattr(helper, "_allowed", True)
    monkeypatch.setattr(helper, "_helper", None)
    monkeypatch.setattr(helper, "_is_possible", lambda: True)
    cache.cache_folder.cache_clear()
    yield cache.cache_folder()
    cache.cache_folder.cache_clear()
    if helper._helper is not None:
        helper._helper.kill()
        helper._helper.wait()


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.02)


def test_one_helper_serves_all_processes(tmp_path: Path, folder: Path) -> None:
    """Another helper ends at once, and none is started while one runs; it continues after the process that started it."""
    program = f"""
from dtrees.split.compile import helper
from tests.split.compile.test_helper import fail, touch, wait_until_killed
helper.allow_helper()
helper.compile_elsewhere(fail)
helper.compile_elsewhere(touch, {str(tmp_path / "first")!r}, name="first")
helper.compile_elsewhere(touch, {str(tmp_path / "second")!r}, name="second")
helper.compile_elsewhere(wait_until_killed)
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
    wait_for(tmp_path / "second")
    assert (tmp_path / "first").exists()
    owner = int((folder / "helper.pid").read_text())
    try:
        assert helper.helper_runs()
        order = helper.compile_elsewhere(touch, str(tmp_path / "third"), name="third")
        assert helper._helper is None
        assert helper._start().wait(60) == 0
        assert order is not None
        assert order.exists()  # the other helper is to carry it out
    finally:
        os.kill(owner, signal.SIGKILL)
    while helper.helper_runs():
        time.sleep(0.02)
    (folder / "wait_until_killed.order").unlink()
    helper._helper = helper._start()
    wait_for(tmp_path / "third")
    assert int((folder / "helper.pid").read_text()) == helper._helper.pid


def test_a_helper_without_work_ends(monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path) -> None:
    """It carries out all pending orders, and another one is started for later ones."""
    monkeypatch.setattr(helper, "_IDLE", 0.1)
    monkeypatch.setattr(sys, "argv", ["", str(folder)])
    monkeypatch.setattr(helper, "_start", lambda: None)
    for name in ("first", "second"):
        helper.compile_elsewhere(touch, str(tmp_path / name), name=name)
        helper._main()
        assert (tmp_path / name).exists()
        assert not list(folder.glob("*.order"))
        assert not helper.helper_runs()


def test_nobody_starts_another_helper_while_one_starts(monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path) -> None:
    """Consecutive commands that end early leave one helper."""
    started: list[int] = []
    monkeypatch.setattr(helper, "_start", lambda: started.append(1))
    for name in ("first", "second"):
        assert helper.compile_elsewhere(touch, str(tmp_path / name), name=name)
    assert started == [1]
    os.utime(folder / "helper.pid", (0, 0))  # as if it had failed
    assert not helper.helper_runs()


def test_an_order_that_comes_when_a_helper_ends(monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path) -> None:
    """It is not lost: the process that gives it sees a helper that runs."""
    monkeypatch.setattr(helper, "_IDLE", 0.0)
    monkeypatch.setattr(sys, "argv", ["", str(folder)])
    release = FileLock.release

    def order_and_release(lock: FileLock, force: bool = False) -> None:
        if not (tmp_path / "done").exists() and not (folder / "helper.pid").exists():
            monkeypatch.setattr(helper, "_IDLE", 0.1)
            late = pickle.dumps((__name__, "touch", (str(tmp_path / "done"),)))
            cache.write_whole(folder / "late.order", cache.with_digest(late))
        release(lock, force)

    monkeypatch.setattr(FileLock, "release", order_and_release)
    helper._main()
    assert (tmp_path / "done").exists()


def test_a_helper_that_fails_does_no_harm(tmp_path: Path) -> None:
    helper.compile_elsewhere(wait_until_killed)
    assert helper._helper is not None
    helper._helper.kill()
    helper._helper.wait()
    assert not helper.helper_runs()
    assert helper.compile_elsewhere(touch, str(tmp_path / "not done")) is None


@lean_entry
def double(x):  # type: ignore[no-untyped-def]
    """A kernel that the helper compiles."""
    return 2.0 * x


@lean_entry
def triple(x):  # type: ignore[no-untyped-def]
    """Another kernel, which this process compiles."""
    return 3.0 * x


@pytest.mark.parametrize("how", ["it works", "it is killed", "it fails"])
def test_kernels_are_compiled_by_two_processes(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """This process has all of them in the end, whatever happens to the helper."""
    if how == "it fails":
        monkeypatch.setattr(helper, "compile_kernel", fail)
    if how == "it is killed":
        monkeypatch.setattr(helper, "_start", lambda: subprocess.Popen([sys.executable, "-c", ""]))
    orders, order = [], helper.compile_elsewhere
    monkeypatch.setattr(helper, "compile_elsewhere", lambda *arguments, **name: orders.append(name) or order(*arguments, **name))
    monkeypatch.setattr(helper, "is_compiled", lambda kernel, kinds: kinds in kernel.overloads)
    wanted = [(kernel, (float64,)) for kernel in (double, triple)]
    for kernel, _ in wanted:
        kernel.overloads.clear()
    helper.compile_together(wanted)
    assert len(orders) == 1
    assert (double(4.0), triple(4.0)) == (8.0, 12.0)
    helper.compile_together(wanted)
    assert len(orders) == 1


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
    assert helper.compile_elsewhere(fail) is None
    assert helper._helper is None


def test_one_processor_has_no_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("DTREES_HELPER", "1")
    monkeypatch.setattr(helper.os, "sched_getaffinity", lambda pid: {0}, raising=False)
    assert not helper._is_possible()
