"""The version of dtrees, and how it is installed, where every room may read them."""

__version__ = "0.1.0"

#: The name on package indexes, where ``dtrees`` is an unrelated project.
DISTRIBUTION = "dask-dtrees"


def pip_install(extra: str = "") -> str:
    """Return the command that installs dtrees, perhaps with the packages of an extra.

    >>> pip_install("plot")
    "pip install 'dask-dtrees[plot]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'" if extra else f"pip install {DISTRIBUTION}"
