"""Compiled kernels on disk.

A *cache folder* holds what was compiled from one state of the sources, by one version of Numba, for one kind of processor: its name is a
digest of all that. A change of any source file with kernels thus leads to another folder, and never leaves stale machine code of a kernel
in another file. One file holds one kernel, compiled for arguments of certain types.

Folders lie beside the package where that can be written to, otherwise in the user's cache, otherwise in a temporary folder. Compiled
kernels are read from wherever they are, so an image with compiled kernels may be read only. ``NUMBA_CACHE_DIR`` names another place.
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
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.registry import cpu_target
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature

from dtrees.split.compile.by_reference import Reference

_logger = logging.getLogger("dtrees")

#: Whether kernels are compiled by :mod:`dtrees.split.compile.numba_pipeline`, which replaces parts of Numba that are not public: only in
#: the minor version of Numba that it was made for, and not if the environment variable DTREES_NUMBA_PATCHES is 0. Otherwise Numba compiles
#: them as usual, which takes several times as long and leads to the same models.
PATCHES_NUMBA = numba.version_info.short == (0, 68) and os.environ.get("DTREES_NUMBA_PATCHES", "1") != "0"

_PACKAGE = Path(__file__).parents[2]
#: Layers above all kernels.
_WITHOUT_KERNELS = {"cluster", "cli"}
#: What is in every file with kernels; the whole split core counts, as kernels there use constants of other files.
_MARK = b"dtrees.split.compile"
#: Settings of Numba that change what it makes of a kernel.
_SETTINGS = "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "ENABLE_AVX", "LOOP_VECTORIZE", "OPT", "SLP_VECTORIZE"
#: Folders of other versions are removed after so many days without use, and all but the latest of them.
_DAYS, _FOLDERS = 30, 4
KERNEL_SUFFIX = ".kernel"


@cache
def kernel_sources() -> tuple[Path, ...]:
    """Return the files that kernels are in, and the constants that they use."""
    files = (path for path in sorted(_PACKAGE.rglob("*.py")) if path.relative_to(_PACKAGE).parts[0] not in _WITHOUT_KERNELS)
    return tuple(path for path in files if path.relative_to(_PACKAGE).parts[0] == "split" or _MARK in path.read_bytes())


@cache
def kernel_version() -> str:
    """Return a digest of all that decides what is compiled: sources, versions, settings and the kind of processor."""
    digest = hashlib.sha256()
    for path in kernel_sources():
        digest.update(path.read_bytes())
    settings = [getattr(config, name) for name in _SETTINGS]
    versions = numba.__version__, llvmlite.__version__, np.__version__, sys.implementation.cache_tag
    processor = cpu_target.target_context.codegen().magic_tuple()
    digest.update(repr((versions, PATCHES_NUMBA, settings, processor)).encode())
    return digest.hexdigest()[:20]


def _places() -> list[Path]:
    """Return where cache folders may lie, the best first."""
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
    """Return the folder that kernels are compiled into; it can be written to."""
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
    """Return a folder among temporary files that nobody but this user can write to: what is in it is run."""
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
    """Remove folders of other versions: those not used for long, and all but the latest."""
    with suppress(OSError):
        others = sorted((folder for folder in place.iterdir() if folder != kept and folder.is_dir()), key=_last_use, reverse=True)
        for number, folder in enumerate(others):
            if number >= _FOLDERS or time.time() - _last_use(folder) > _DAYS * 86400:
                shutil.rmtree(folder, ignore_errors=True)


def _last_use(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def _readable() -> Iterator[Path]:
    """Return the folders that may hold compiled kernels, which may be read only but for one."""
    yield cache_folder()
    for place in _places():
        if place / kernel_version() != cache_folder():
            yield place / kernel_version()


#: Asks other machines for a kernel, or gives them one; see :func:`exchange_with`.
_ask_others: Callable[[str, str, bytes | None], bytes | None] | None = None


def exchange_with(ask: Callable[[str, str, bytes | None], bytes | None] | None) -> None:
    """Have this process ask others for kernels before it compiles them, and give them those that it has compiled.

    ``ask`` is called with a version of kernels, the name of a file with one, and None: it returns the file, or None if the kernel is to be
    compiled here, as nobody has it or makes it. Or it is given the file, an empty one if that is of no use to others, who must not wait.
    """
    global _ask_others
    _ask_others = ask


def fetch_kernel(name: str) -> None:
    """Ask others for a kernel that is not on disk."""
    content = None if _ask_others is None else _ask_others(kernel_version(), name, None)
    if content is not None:
        with suppress(ValueError):
            checked(content)
            write_whole(cache_folder() / name, content)


class KernelCache(_Cache):
    """One kernel as compiled for arguments of certain types, on disk; in place of Numba's own cache.

    Parameters
    ----------
    function : function
        The kernel's source.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self.name = f"{function.__module__}.{function.__qualname__}".replace("<", "").replace(">", "")

    @property
    def cache_path(self) -> str:
        """Where the kernel is saved."""
        return str(cache_folder())

    def enable(self) -> None:
        """Do nothing: it is always enabled."""

    def disable(self) -> None:
        """Do nothing: it is always enabled."""

    def flush(self) -> None:
        """Do nothing: files are removed with their folder."""

    def file_name(self, signature: Any) -> str:
        """Return the name of the file with the kernel for arguments of these types."""
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
        """Return the file with the kernel for arguments of these types, if it was compiled."""
        name = self.file_name(signature)
        return next((folder / name for folder in _readable() if (folder / name).is_file()), None)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the kernel for arguments of these types, or None."""
        path = self.find(sig)
        if path is None:
            return None
        rtsys.initialize(target_context)  # all that machine code needs: to load what Numba compiles by takes as long as to import it
        try:
            return CompileResult._rebuild(target_context, *pickle.loads(checked(path.read_bytes())))
        except (OSError, ValueError):
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save the kernel for arguments of these types, unless it refers to objects of this process: others then compile it themselves."""
        name, content = self.file_name(sig), b""
        if not data.library.has_dynamic_globals:
            content = with_digest(dumps(data._reduce()))
            write_whole(cache_folder() / name, content)
        if _ask_others is not None:
            _ask_others(kernel_version(), name, content)


def _source_digest(path: str | None) -> str:
    """Return a digest of a file that is not part of the package: a user's, or a test's, has kernels or a criterion too."""
    if path is None or Path(path).is_relative_to(_PACKAGE) or not Path(path).is_file():
        return ""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _classes(arguments: Iterable[Any]) -> Iterator[str]:
    """Return the full names of the classes of named tuples, as types of the same name and fields look the same."""
    for one in arguments:
        if isinstance(one, Reference):
            one = one.content
        if isinstance(one, types.BaseTuple):  # type: ignore[attr-defined]
            if isinstance(one, types.BaseNamedTuple):  # type: ignore[attr-defined]
                cls = one.instance_class
                yield f"{cls.__module__}.{cls.__qualname__} {_source_digest(getattr(sys.modules.get(cls.__module__), '__file__', None))}"
            yield from _classes(one.types)


def n_compiled() -> int:
    """Return how many kernels are compiled on this machine, each counted for each combination of types."""
    return sum(1 for _ in cache_folder().glob(f"*{KERNEL_SUFFIX}"))


def with_digest(content: bytes) -> bytes:
    """Return the content of a file that :func:`checked` accepts."""
    return hashlib.sha256(content).digest() + content


def checked(content: bytes) -> memoryview:
    """Return what is in a file but its digest; raises ValueError if it is damaged."""
    view = memoryview(content)
    if hashlib.sha256(view[32:]).digest() != view[:32]:
        raise ValueError("a file with a compiled kernel is damaged")
    return view[32:]


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that nobody sees a part of it; a folder that is full or gone is no error."""
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}")
    with suppress(OSError):
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def is_cached(name: str) -> bool:
    """Tell whether a kernel, ``module.name``, has been compiled for any arguments."""
    return any(any(folder.glob(f"{name}-*{KERNEL_SUFFIX}")) for folder in _readable())
