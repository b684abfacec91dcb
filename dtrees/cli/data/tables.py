"""Tables: CSV and Parquet files as Dask DataFrames.

What the user calls *data* is one file, a folder of files or a pattern, on this machine or at an address that fsspec knows
(``s3://...``). Rows are in the order of the files, by name, and of the lines within them. They are looked at
here, or, where they are not here, on a worker of a cluster, perhaps the only place that can read them (:func:`place_of`).
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import Any, TypeVar

from dtrees.cli.data import csv_types
from dtrees.cli.terminal.errors import CommandError

#: Names that are to be CSV.
TEXT_SUFFIXES = (".csv", ".tsv", ".txt")
#: Names that are to be Parquet.
PARQUET_SUFFIXES = (".parquet", ".pq")
#: Compressed files, by the end of their names.
COMPRESSION = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zip": "zip", ".zst": "zstd"}
#: How JSON, HTML and XML begin.
_OTHER_TEXT = re.compile(rb"(\xef\xbb\xbf)?\s*(\{\s*[\"}]|\[\s*[\[{\]\"]|<(!doctype|html|\?xml))", re.IGNORECASE)


@dataclass(frozen=True)
class CSVForm:
    """How CSV files are written.

    Attributes
    ----------
    separator : str or None
        Between values. None: a comma, or a tab for ``.tsv``.
    decimal : str
        Before the fraction of a number.
    thousands : str or None
        Between groups of digits.

    Raises
    ------
    CommandError
        If one of them is not a single character, or two are the same.
    """

    separator: str | None = None
    decimal: str = "."
    thousands: str | None = None

    def __post_init__(self) -> None:
        for option, given in (("--decimal", self.decimal), ("--thousands", self.thousands)):
            if given is not None and (len(given) != 1 or given.isalnum()):
                raise CommandError(f"{option} is {given!r}; give one character, such as ',' or '.'.")
        if self.decimal == self.thousands:
            raise CommandError(f"--decimal and --thousands are both {self.decimal!r}; give two different characters.")


DEFAULT_FORM = CSVForm()


@dataclass(frozen=True)
class Files:
    """The files behind a DATA argument: what the user wrote, ``"csv"`` or ``"parquet"``, and the paths in order."""

    data: str
    kind: str
    paths: tuple[str, ...]


def find_files(data: str) -> Files:
    """Return the files that a DATA argument stands for.

    Parameters
    ----------
    data : str
        A file, a folder or a pattern with ``*``, ``?`` or ``[...]``.

    Raises
    ------
    CommandError
        If there is nothing, or CSV and Parquet together.
    """
    from fsspec.core import url_to_fs

    system, path = url_to_fs(os.path.expanduser(data))
    if system.isfile(path):
        paths = [path]
    elif system.isdir(path):
        paths = [found for found in sorted(system.find(path)) if _is_table(found)]
        if not paths:
            raise CommandError(f"The folder {data!r} has no CSV or Parquet files in it (names ending in .csv, .tsv, .txt, .parquet, .pq).")
    elif any(character in data for character in "*?["):
        matches = [found for found in sorted(system.glob(path)) if system.isfile(found)]
        paths = [found for found in matches if _is_table(found)] or matches  # names like 'part-0*' are fine, a README among tables is not
        if not paths:
            raise CommandError(f"No file matches {data!r}.")
    else:
        raise CommandError(f"{data!r} does not exist.{_nearby(system, path)}")
    kinds = {_file_kind(system, found) for found in paths}
    if len(kinds) > 1:
        raise CommandError(f"{data!r} holds both CSV and Parquet files; give one kind, for example with a pattern such as '*.csv'.")
    local = "file" in (system.protocol if isinstance(system.protocol, tuple) else (system.protocol,))
    return Files(data, kinds.pop(), tuple(found if local else system.unstrip_protocol(found) for found in paths))


def column_names(files: Files, form: CSVForm = DEFAULT_FORM) -> list[str]:
    """Return the names of the columns, from the start of the first file.

    Raises
    ------
    CommandError
        If CSV files differ in their columns, or seem to have another separator.
    """
    import pandas as pd

    if files.kind == "parquet":
        import dask.dataframe as dd

        return [str(name) for name in dd.read_parquet(list(files.paths)).columns]
    header = _common_header(files)
    separator = _separator(files, form)
    names = [str(name) for name in pd.read_csv(io.BytesIO(header), sep=separator, nrows=0).columns]
    if len(names) == 1:
        for other in ";\t|,":
            if other in names[0]:
                raise CommandError(
                    f"{files.data!r} has a single column, {names[0]!r}, if split at {separator!r}; try --separator {other!r}."
                )
    return names


def repeated_names(files: Files, form: CSVForm = DEFAULT_FORM) -> dict[str, str]:
    """Return the CSV columns whose name an earlier one has: what they are called instead, and the name in the file.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/t.csv"
    >>> _ = open(path, "w").write("a,b,a")
    >>> repeated_names(find_files(path))
    {'a.1': 'a'}
    """
    import pandas as pd

    if files.kind == "parquet":
        return {}
    header = pd.read_csv(io.BytesIO(_common_header(files)), sep=_separator(files, form), header=None, dtype=str, keep_default_na=False)
    given = header.iloc[0].tolist()
    return {
        called: name for name, called in zip(given, column_names(files, form), strict=True) if name in given and name != called and name
    }


def read_table(data: str, *, form: CSVForm = DEFAULT_FORM, text: Collection[str] = (), numbers: Collection[str] = ()) -> Any:
    """Return a table as a lazy Dask DataFrame.

    Parameters
    ----------
    data : str
        A file, a folder or a pattern.
    form : CSVForm
        Of CSV files.
    text : collection of str
        CSV columns that are text whatever they look like.
    numbers : collection of str
        CSV columns that are to hold numbers or flags: flags with gaps are not text there.

    Raises
    ------
    CommandError
        If the files cannot be found or are not such tables.
    """
    import dask.dataframe as dd

    files = find_files(data)
    names = column_names(files, form)
    if files.kind == "parquet":
        return dd.read_parquet(list(files.paths))
    header = _common_header(files)
    compression = _compression(files.paths[0])
    reading = {"sep": _separator(files, form), "decimal": form.decimal, "thousands": form.thousands}
    dtypes, block_size = csv_types.infer(files.paths, header, reading, [name for name in text if name in names], numbers, compression)
    return dd.read_csv(
        list(files.paths),
        **reading,
        dtype=dtypes,
        blocksize=block_size,
        compression=compression,
        sample=max(256_000, 4 * len(header)),
    )


def check_columns(wanted: Sequence[str], columns: Sequence[str], option: str, data: str) -> None:
    """Raise a :class:`CommandError` if the table has no column of a name that an option gave."""
    for name in wanted:
        if name not in columns:
            from dtrees.ensemble.estimators.parameters import suggestion  # brings in scikit-learn

            raise CommandError(f"{option}: {data!r} has no column {name!r}. {suggestion(name, columns)}")


def column_list(values: Sequence[str]) -> list[str]:
    """Return the column names of a repeatable option, each of which may name several, separated by commas.

    >>> column_list(["id,name", "date"])
    ['id', 'name', 'date']
    """
    return [name.strip() for value in values for name in value.split(",") if name.strip()]


def _common_header(files: Files) -> bytes:
    """The first line of the CSV files, which must be the same in all."""
    headers = [_first_line(path) for path in files.paths]
    for path, header in zip(files.paths, headers, strict=True):
        if not header.strip():
            raise CommandError(f"{path!r} is empty; a CSV file starts with a line of column names.")
        if header.strip() != headers[0].strip():
            raise CommandError(
                f"{path!r} has other columns than {files.paths[0]!r}; all files of a table must have the same, in the same order."
            )
    return headers[0] if headers[0].endswith(b"\n") else headers[0] + b"\n"


def _first_line(path: str) -> bytes:
    import fsspec

    with fsspec.open(path, "rb", compression=_compression(path)) as file:
        line: bytes = file.readline()
    return line


def _separator(files: Files, form: CSVForm) -> str:
    if form.separator is not None:
        return form.separator.replace("\\t", "\t")
    return "\t" if ".tsv" in PurePath(files.paths[0]).suffixes else ","


def _compression(path: str) -> str | None:
    return COMPRESSION.get(PurePath(path).suffix.lower())


def _is_table(path: str) -> bool:
    name = PurePath(path).name.lower()
    suffixes = PurePath(name).suffixes
    if suffixes and suffixes[-1] in COMPRESSION:
        suffixes = suffixes[:-1]
    return bool(suffixes) and suffixes[-1] in TEXT_SUFFIXES + PARQUET_SUFFIXES and not name.startswith((".", "_"))


def _file_kind(system: Any, path: str) -> str:
    """Tell by the first bytes: names can mislead."""
    compression = _compression(path)
    with system.open(path, "rb", compression=compression) as file:
        start = file.read(1024)
    if start.startswith(b"PAR1") and compression is None:
        return "parquet"
    if path.lower().endswith(PARQUET_SUFFIXES) or b"\0" in start or _OTHER_TEXT.match(start):
        raise CommandError(
            f"{path!r} is neither a Parquet file nor CSV text (which may be compressed: {', '.join(COMPRESSION)}); convert it to one of "
            "them. JSON, Excel and other formats are not read."
        )
    return "csv"


def _nearby(system: Any, path: str) -> str:
    """A hint at files of a similar name in the same folder."""
    try:
        names = [PurePath(found).name for found in system.ls(str(PurePath(path).parent), detail=False)]
    except OSError:
        return " Nor does its folder."
    from dtrees.ensemble.estimators.parameters import suggestion  # brings in scikit-learn

    hint = suggestion(PurePath(path).name, names)
    return f" {hint}" if hint.startswith("Did") else " Check the path."


T = TypeVar("T")


def place_of(data: str, client: Any) -> Callable[..., Any]:
    """Return what calls functions that look at the files of a DATA argument: here if they are here, or there is no client.

    Otherwise it has a worker of the cluster call them.

    >>> place_of("table.csv", None)(sorted, [2, 1], reverse=True)
    [2, 1]
    """
    if client is not None:
        try:
            find_files(data)
        except (CommandError, OSError):
            return partial(_on_worker, client)
    return _here


def _here(function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    return function(*arguments, **options)


def _on_worker(client: Any, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    result: T = client.submit(_call, function, arguments, options, pure=False).result()
    return result


def _call(function: Callable[..., T], arguments: tuple[Any, ...], options: dict[str, Any]) -> T:
    """Call a function in a task, from which it may compute more on the same cluster."""
    from distributed import worker_client

    with worker_client():
        return function(*arguments, **options)
