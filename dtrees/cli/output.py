"""Where commands write to, checked before the work is done rather than after it."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path, PurePath

from dtrees.cli.errors import CommandError
from dtrees.cli.tables import PARQUET_SUFFIXES, TEXT_SUFFIXES

#: Of what a table can be written to; a name without one, such as that of a pipe, is CSV.
OUTPUT_SUFFIXES = ("", *TEXT_SUFFIXES, *PARQUET_SUFFIXES)


#: Of pages of HTML; a name without one is taken as it is.
HTML_SUFFIXES = ("", ".html", ".htm")


def check_destinations(written: Mapping[str, str | None], read: Collection[str]) -> None:
    """Raise if a file that an option names cannot be written, is read by the command, or is named by another option too.

    Parameters
    ----------
    written : mapping from str to str or None
        What each option names, by the option; None or empty where nothing is to be written.
    read : collection of str
        Files that the command reads.

    Raises
    ------
    CommandError
    """
    taken = {_place(path): "what this command reads" for path in read}
    for option, path in written.items():
        if not path:
            continue
        if not _is_address(path):
            _check_folder(option, Path(_place(path)).parent)
        if (place := _place(path)) in taken:
            raise CommandError(f"{option}: {path!r} is {taken[place]}, and would be written over; give another name.")
        taken[place] = f"what {option} names too"


def check_suffix(option: str, path: str, suffixes: Collection[str], what: str) -> None:
    """Raise if the name of what is to be written has another suffix than one of those of what it will be.

    Parameters
    ----------
    option : str
    path : str
    suffixes : collection of str
        In lower case, with the point; empty text stands for none.
    what : str
        What is written.

    Raises
    ------
    CommandError
    """
    if PurePath(path).suffix.lower() not in suffixes:
        *others, last = (suffix for suffix in suffixes if suffix)
        raise CommandError(
            f"{option}: {path!r} is no name for {what}; give one ending in {', '.join(others)}{' or ' * bool(others)}{last}."
        )


def check_new(option: str, path: str) -> None:
    """Raise if there is something at a place where a command makes up data."""
    if os.path.lexists(path):
        raise CommandError(
            f"{option}: {path!r} exists, and would be written over with a made-up table; give a new name. "
            f"To train on a table of your own: dtrees fit {path} --target COLUMN"
        )


def _check_folder(option: str, folder: Path) -> None:
    if not folder.is_dir():
        raise CommandError(f"{option}: the folder {str(folder)!r} does not exist; create it first.")
    if not os.access(folder, os.W_OK):
        raise CommandError(f"{option}: the folder {str(folder)!r} is not writable; choose another.")


def _is_address(path: str) -> bool:
    return ("://" in path or "::" in path) and not path.startswith("file://")


def _place(path: str) -> str:
    """Return what two names of one file have in common."""
    return path if _is_address(path) else os.path.realpath(os.path.expanduser(path.removeprefix("file://")))
