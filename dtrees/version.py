"""The version of dtrees, and how it is installed, where every package may read them; what it does not require, but may need."""

from importlib import import_module
from typing import Any

__version__ = "0.2.0"

#: The name on package indexes, where ``dtrees`` is an unrelated project.
DISTRIBUTION = "dask-dtrees"


def pip_install(extra: str = "") -> str:
    """Return the command that installs dtrees, perhaps with the packages of an extra.

    >>> pip_install("plot")
    "pip install 'dask-dtrees[plot]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'" if extra else f"pip install {DISTRIBUTION}"


def needed(module: str, extra: str) -> Any:
    """Import a module that is no requirement of dtrees.

    Raises
    ------
    ImportError
        If it is not installed; the message says how to install it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        install = pip_install(extra) if extra in ("export", "jax", "mlflow", "plot", "tune") else f"pip install {extra}"
        raise ImportError(f"this needs {package}, which cannot be imported ({error}); {install}") from error
