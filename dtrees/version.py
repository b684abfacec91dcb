"""The version of dtrees, how to install it, and the import of optional packages; this module imports nothing else of dtrees."""

import contextlib
from collections.abc import Iterable
from importlib import import_module, metadata
from typing import Any

__version__ = "0.2.0"

#: The name on package indexes, where ``dtrees`` is an unrelated project.
DISTRIBUTION = "dask-dtrees"


def pip_install(extra: str = "") -> str:
    """Return the command that installs dtrees, optionally with an extra.

    >>> pip_install("plot")
    "pip install 'dask-dtrees[plot]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'" if extra else f"pip install {DISTRIBUTION}"


def installed(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def needed(module: str, extra: str) -> Any:
    """Import an optional package.

    Raises
    ------
    ImportError
        If it is not installed; the message explains how to install it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        install = pip_install(extra) if extra in ("export", "jax", "mlflow", "plot", "tune") else f"pip install {extra}"
        raise ImportError(f"this needs {package}, which cannot be imported ({error}); {install}") from error
