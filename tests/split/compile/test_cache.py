"""Location of compiled kernels, and what they depend on."""

import ast
import importlib
import logging
import os
import pkgutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

import dtrees
from dtrees.split.compile import cache
from dtrees.split.compile.kernels import is_compiled, kernel


def twice(x):  # type: ignore[no-untyped-def]
    return 2 * x


def fresh_kernel():  # type: ignore[no-untyped-def]
    """A kernel that is not in memory."""
    return kernel(twice)


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Path]]:
    """The locations of kernels, as a list to be changed; temporary files are redirected, too."""
    found = [tmp_path / "beside the package", tmp_path / "of the user"]
    monkeypatch.setattr(cache, "_places", lambda: found)
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    cache.cache_folder.cache_clear()
    yield found
    cache.cache_folder.cache_clear()


def not_writable(monkeypatch: pytest.MonkeyPatch, *places: Path) -> None:
    """Make folders read-only, whatever the rights of the user."""
    is_writable = cache._is_writable
    monkeypatch.setattr(cache, "_is_writable", lambda folder: folder.parent not in places and is_writable(folder))


def files(place: Path) -> list[str]:
    return sorted(path.name.rpartition("-")[0] for path in (place / cache.kernel_version()).glob("*.kernel"))


def test_kernels_are_kept_beside_the_package(places: list[Path]) -> None:
    assert fresh_kernel()(3) == 6
    assert [name.rpartition(".")[2] for name in files(places[0])] == ["twice"]
    again = fresh_kernel()
    assert again(3) == 6
    assert sum(again.stats.cache_hits.values()) == 1
    assert again(3.0) == 6.0
    assert len(files(places[0])) == 2


def test_a_change_of_any_source_leads_to_another_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text("1")
    other.write_text("2")
    monkeypatch.setattr(cache, "kernel_sources", lambda: (one, other))
    version = cache.kernel_version.__wrapped__
    before = version()
    assert version() == before
    other.write_text("3")
    assert version() != before


def test_bounds_checks_lead_to_another_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache.config, "BOUNDSCHECK", 1)
    assert cache.kernel_version.__wrapped__() != cache.kernel_version()


def test_read_only_package_and_home(
    monkeypatch: pytest.MonkeyPatch, places: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    places[:] = [tmp_path / "file" / "in no folder"]
    with caplog.at_level(logging.WARNING, "dtrees"):
        assert fresh_kernel()(3) == 6
        assert fresh_kernel()(3.0) == 6.0
    assert [record.getMessage().count("NUMBA_CACHE_DIR") for record in caplog.records] == [1]
    (folder,) = (tmp_path / "temporary").iterdir()
    assert len(files(folder)) == 2


def test_compiled_kernels_are_read_from_a_read_only_package(
    monkeypatch: pytest.MonkeyPatch, places: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fresh_kernel()(3)
    cache.cache_folder.cache_clear()
    not_writable(monkeypatch, *places)
    again = fresh_kernel()
    assert again(3) == 6
    assert sum(again.stats.cache_hits.values()) == 1
    assert not caplog.records
    again(3.0)
    assert files(places[0])
    assert not files(places[1])


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="other users' files")
def test_a_temporary_folder_that_others_can_write_to_is_not_used(places: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    places[:] = [tmp_path / "file" / "in no folder"]
    open_to_all = tmp_path / "temporary" / f"dtrees-kernels-{os.getuid()}"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    assert fresh_kernel()(3) == 6
    assert not list(open_to_all.iterdir())


def test_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(cache.config, "CACHE_DIR", "")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(cache.Path, "home", no_home)
    assert cache._places() == [cache._PACKAGE / "__pycache__" / "kernels"]


def test_a_damaged_file_is_compiled_again(places: list[Path]) -> None:
    fresh_kernel()(3)
    (path,) = (places[0] / cache.kernel_version()).glob("*.kernel")
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    again = fresh_kernel()
    assert again(3) == 6
    assert not again.stats.cache_hits
    assert cache.checked(path.read_bytes())


def test_folders_of_other_versions_are_removed(places: list[Path]) -> None:
    for number in range(8):
        folder = places[0] / f"version {number}"
        folder.mkdir(parents=True)
        os.utime(folder, (time.time() - number * 12 * 86400,) * 2)
    assert cache.cache_folder().is_dir()
    assert sorted(folder.name for folder in places[0].iterdir() if folder.name.startswith("version")) == [
        "version 0",
        "version 1",
        "version 2",
    ]


def test_types_of_the_same_name_are_told_apart() -> None:
    one, other = np.zeros(1, [("a", np.int64)]), np.zeros(1, [("a", np.float64)])
    name_of = fresh_kernel()._cache.file_name
    from numba import typeof

    assert name_of((typeof(one),)) != name_of((typeof(other),))
    assert not is_compiled(fresh_kernel(), (typeof(one),))


class Others:
    """The kernels of other machines, in memory."""

    def __init__(self) -> None:
        self.files: dict[tuple[str, str], bytes] = {}

    def ask(self, version: str, name: str, content: bytes | None) -> bytes | None:
        if content is not None:
            self.files[version, name] = content
        return self.files.get((version, name))


def test_kernels_of_others(places: list[Path], tmp_path: Path) -> None:
    others = Others()
    cache.exchange_with(others.ask)
    try:
        assert fresh_kernel()(3) == 6
        places.insert(0, tmp_path / "another machine")
        cache.cache_folder.cache_clear()
        again = fresh_kernel()
        assert again(3) == 6
        assert sum(again.stats.cache_hits.values()) == 1
        assert len(others.files) == 1
        (key,) = others.files
        others.files[key] = b"damaged"
        places.insert(0, tmp_path / "a third machine")
        del places[1:]
        cache.cache_folder.cache_clear()
        again = fresh_kernel()
        assert again(3) == 6
        assert not again.stats.cache_hits
    finally:
        cache.exchange_with(None)


def test_kernels_that_cannot_be_kept_are_not_waited_for(places: list[Path]) -> None:
    """A kernel that refers to an object of this process: others are notified that they cannot use it."""
    others, numbers = Others(), np.arange(10**6)
    cache.exchange_with(others.ask)
    try:

        @kernel
        def last(i):
            return numbers[i]

        assert last(-1) == 10**6 - 1
        assert list(others.files.values()) == [b""]
    finally:
        cache.exchange_with(None)


def imported_names(path: Path) -> dict[str, str]:
    """Return the names that a file imports from the package, and their modules."""
    return {
        alias.asname or alias.name: node.module
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dtrees")
        for alias in node.names
    }


@pytest.mark.slow
def test_all_that_kernels_use_counts() -> None:
    """Kernels, and the constants and functions that they use, are in files whose change leads to another folder."""
    names = [module.name for module in pkgutil.walk_packages(dtrees.__path__, "dtrees.")]
    for name in names:
        if not name.startswith(("dtrees.cluster", "dtrees.cli", "dtrees.__main__")):
            importlib.import_module(name)
    sources, n_kernels = set(cache.kernel_sources()), 0
    for name in [name for name in sys.modules if name.startswith("dtrees.")]:
        for value in list(vars(sys.modules[name]).values()):
            if isinstance(value, Dispatcher) and value.py_func.__module__ == name:
                n_kernels += 1
                path = Path(value.py_func.__code__.co_filename)
                assert path in sources
                imported = imported_names(path)
                for used in value.py_func.__code__.co_names:
                    if used in imported and imported[used] != "dtrees.split.compile":
                        source = importlib.import_module(imported[used]).__file__
                        assert Path(source or "") in sources, (value, used)
    assert n_kernels > 100
