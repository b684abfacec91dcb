"""Compiled kernels on disk.

A *cache folder* holds the kernels compiled from one state of the sources, by one version of Numba, for one type of processor. Its name
is a digest of these, so a change of any source file with kernels leads to another folder: machine code of a kernel from another file is
never stale. A file holds one kernel, compiled for one combination of argument types.

Folders lie beside the package if that is writable, otherwise in the user's cache, otherwise in a temporary folder. Compiled kernels are
read from any of these, so an image with compiled kernels may be read-only. ``NUMBA_CACHE_DIR`` sets another location.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core import config, types
from numba.core.compiler import CompileResult
from numba.core.registry import cpu_target
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature

from dtrees.split.compile.by_reference import Reference

_logger = logging.getLogger("dtrees")

#: Whether kernels are compiled by :mod:`dtrees.split.compile.numba_pipeline`, which replaces private parts of Numba: only in the minor
#: version of Numba that it was written for, and not if the environment variable DTREES_NUMBA_PATCHES is 0. Numba's usual pipeline takes
#: several times as long and leads to the same models.
PATCHES_NUMBA = numba.version_info.short == (0, 68) and os.environ.get("DTREES_NUMBA_PATCHES", "1") != "0"

_PACKAGE = Path(__file__).parents[2]
#: Layers above all kernels.
_WITHOUT_KERNELS = {"cluster", "cli"}
#: Text that every file with kernels contains. All files of the split core count, as kernels there use constants of other files.
_MARK = b"dtrees.split.compile"
#: Settings of Numba that change the machine code of a kernel.
_SETTINGS = "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "ENABLE_AVX", "LOOP_VECTORIZE", "OPT", "SLP_VECTORIZE"
#: Days without use after which folders of other versions are removed, and the number of such folders that remain at most.
_DAYS, _FOLDERS = 30, 4
KERNEL_SUFFIX = ".kernel"


@cache
def kernel_sources() -> tuple[Path, ...]:
    """Return the files with kernels or with constants that kernels use."""
    files = (path for path in sorted(_PACKAGE.rglob("*.py")) if path.relative_to(_PACKAGE).parts[0] not in _WITHOUT_KERNELS)
    return tuple(path for path in files if path.relative_to(_PACKAGE).parts[0] == "split" or _MARK in path.read_bytes())


@cache
def kernel_version() -> str:
    """Return a digest of everything that determines the machine code: sources, versions, settings and the type of processor."""
    digest = hashlib.sha256()
    for path in kernel_sources():
        digest.update(path.read_bytes())
    settings = [getattr(config, name) for name in _SETTINGS]
    versions = numba.__version__, llvmlite.__version__, np.__version__, sys.implementation.cache_tag
    processor = cpu_target.target_context.codegen().magic_tuple()
    digest.update(repr((versions, PATCHES_NUMBA, settings, processor)).encode())
    return digest.hexdigest()[:20]


def _places() -> list[Path]:
    """Return the possible locations of cache folders, in order of preference."""
    if config.CACHE_DIR:
        return [Path(config.CACHE_DIR) / "dtrees"]
    places = [_PACKAGE / "__pycache__" / "kernels"]
    with suppress(RuntimeError):  # no home
        places.append(_user_place())
    return places


def _user_place() -> Path:
    if sys.platform == "win32" and "LOCALAPPDATA" in os.environ:
        return Path(os.environ["LOCALAPPDATA"]) / "dtrees" / "kernels"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dtrees" / "kernels"
    if os.path.isabs(os.environ.get("XDG_CACHE_HOME", "")):
        return Path(os.environ["XDG_CACHE_HOME"]) / "dtrees" / "kernels"
    return Path.home() / ".cache" / "dtrees" / "kernels"


@cache
def cache_folder() -> Path:
    """Return the folder that compiled kernels are written to."""
    places = _places()
    for place in places:
        folder = place / kernel_version()
        is_new = not folder.is_dir()
        if _is_writable(folder):
            if is_new:
                _remove_old(place, folder)
            return folder
    if not any((place / kernel_version()).is_dir() for place in places):
        tried = ", ".join(map(str, places))
        _logger.warning(
            "dtrees cannot store its compiled kernels: it may not write to %s. They are compiled again when the temporary folder is gone. "
            "Set NUMBA_CACHE_DIR to a folder that can be written to.",
            tried,
        )
    return _temporary() / kernel_version()


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        os.utime(folder)
    except OSError:
        return False
    return True


def _temporary() -> Path:
    """Return a temporary folder that only this user can write to, since the code in it is executed."""
    if hasattr(os, "getuid"):
        folder = Path(tempfile.gettempdir()) / f"dtrees-kernels-{os.getuid()}"
        with suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            about = folder.lstat()
            if about.st_uid == os.getuid() and about.st_mode & 0o170077 == 0o040000 and _is_writable(folder / kernel_version()):
                return folder
    folder = Path(tempfile.mkdtemp(prefix="dtrees-kernels-"))
    (folder / kernel_version()).mkdir()
    return folder


def _remove_old(place: Path, kept: Path) -> None:
    """Remove folders of other versions: unused for long, or more than the latest few."""
    with suppress(OSError):
        last_use = {folder: folder.stat().st_mtime for folder in place.iterdir() if folder != kept and folder.is_dir()}
        for number, folder in enumerate(sorted(last_use, key=last_use.__getitem__, reverse=True)):
            if number >= _FOLDERS or time.time() - last_use[folder] > _DAYS * 86400:
                shutil.rmtree(folder, ignore_errors=True)


def _readable() -> Iterator[Path]:
    """Return the folders that may hold compiled kernels; all but one may be read-only."""
    yield cache_folder()
    for place in _places():
        if place / kernel_version() != cache_folder():
            yield place / kernel_version()


#: Requests a kernel from other machines, or offers one to them; see :func:`exchange_with`.
_ask_others: Callable[[str, str, bytes | None], bytes | None] | None = None


def exchange_with(ask: Callable[[str, str, bytes | None], bytes | None] | None) -> None:
    """Request kernels from other processes before compiling them, and offer them the kernels compiled here.

    ``ask`` is called with a version of kernels, the name of a kernel's file, and None: it returns the content of the file, or None if
    this process has to compile the kernel. Or it is called with the content, which is empty if other processes cannot use it and must
    not wait for it.
    """
    global _ask_others
    _ask_others = ask


def fetch_kernel(name: str) -> None:
    """Request a kernel that is not on disk from other processes."""
    content = None if _ask_others is None else _ask_others(kernel_version(), name, None)
    if content is not None:
        with suppress(ValueError):
            checked(content)
            write_whole(cache_folder() / name, content)


class KernelCache:
    """One kernel on disk, compiled for certain argument types; takes the place of a cache of Numba's, and is always enabled.

    Parameters
    ----------
    function : function
        The kernel before it is compiled.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self.name = f"{function.__module__}.{function.__qualname__}".replace("<", "").replace(">", "")

    @property
    def cache_path(self) -> str:
        """Where the kernel is saved."""
        return str(cache_folder())

    def file_name(self, signature: Any) -> str:
        """Return the name of the file with the kernel for these argument types."""
        return f"{self.name}-{self._key(signature)}{KERNEL_SUFFIX}"

    def _key(self, signature: Any) -> str:
        arguments, _ = normalize_signature(signature)
        digest = hashlib.sha256(repr((arguments, [*_classes(arguments)])).encode())
        digest.update(self._function.__code__.co_code)
        if self._function.__closure__:
            digest.update(dumps(tuple(cell.cell_contents for cell in self._function.__closure__)))
        digest.update(_source_digest(self._function.__code__.co_filename).encode())
        return digest.hexdigest()[:20]

    def find(self, signature: Any) -> Path | None:
        """Return the file with the kernel for these argument types, or None."""
        name = self.file_name(signature)
        return next((folder / name for folder in _readable() if (folder / name).is_file()), None)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the kernel for these argument types, or None."""
        path = self.find(sig)
        if path is None:
            return None
        rtsys.initialize(target_context)  # enough to load machine code; importing Numba's compiler would take as long as the load
        try:
            return CompileResult._rebuild(target_context, *pickle.loads(checked(path.read_bytes())))
        except (OSError, ValueError):
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save a kernel, unless it refers to objects of this process: other processes then compile it themselves."""
        name, content = self.file_name(sig), b""
        if not data.library.has_dynamic_globals:
            content = with_digest(dumps(data._reduce()))
            write_whole(cache_folder() / name, content)
        if _ask_others is not None:
            _ask_others(kernel_version(), name, content)


def _source_digest(path: str | None) -> str:
    """Return a digest of a file outside the package, such as a user's file with kernels or a criterion."""
    if path is None or Path(path).is_relative_to(_PACKAGE) or not Path(path).is_file():
        return ""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _classes(arguments: Iterable[Any]) -> Iterator[str]:
    """Return the full names of the classes of named tuples: types with equal names and fields look the same."""
    for one in arguments:
        if isinstance(one, Reference):
            one = one.content
        if isinstance(one, types.BaseTuple):  # type: ignore[attr-defined]
            if isinstance(one, types.BaseNamedTuple):  # type: ignore[attr-defined]
                cls = one.instance_class
                yield f"{cls.__module__}.{cls.__qualname__} {_source_digest(getattr(sys.modules.get(cls.__module__), '__file__', None))}"
            yield from _classes(one.types)


def n_compiled() -> int:
    """Return the number of kernels compiled on this machine, counted for each combination of types."""
    return sum(1 for _ in cache_folder().glob(f"*{KERNEL_SUFFIX}"))


def with_digest(content: bytes) -> bytes:
    """Add a digest to the content of a file, which :func:`checked` verifies."""
    return hashlib.sha256(content).digest() + content


def checked(content: bytes) -> memoryview:
    """Return the content of a file without its digest; raises ValueError if it is damaged."""
    view = memoryview(content)
    if hashlib.sha256(view[32:]).digest() != view[:32]:
        raise ValueError("a file with a compiled kernel is damaged")
    return view[32:]


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically. A folder that is full or missing is no error."""
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}")
    with suppress(OSError):
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def is_cached(name: str) -> bool:
    """Return whether a kernel, ``module.name``, has been compiled for any arguments."""
    return any(any(folder.glob(f"{name}-*{KERNEL_SUFFIX}")) for folder in _readable())
