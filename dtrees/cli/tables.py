"""Tables: CSV and Parquet files as Dask DataFrames; and output files, which are checked before the work is done.

*Data* is one file, a folder of files or a pattern, on this machine or at an fsspec URL (``s3://...``). Rows are in the order of the
files, by name, and of the lines within them. Files are inspected here or, if they are not here, on a worker of a cluster, which may be
the only place that can read them.

A CSV file does not state the types of its columns, and dask.dataframe guesses them from the first rows: a column of integers there that
has a missing value or a word further down fails during training. So every block is parsed once to find its types, and these are
combined:

========================  ==============================================
the blocks hold           the column is
========================  ==============================================
whole numbers             int64 (uint64 beyond)
also missing values       float64
true and false            bool
also missing values       text; boolean, if it is to hold numbers
numbers of any kind       float64
anything else             text, exactly as it stands in the file
nothing                   float64, all missing
========================  ==============================================

Blocks begin and end at line breaks, and a line break within quotes does not end a row. A block with an odd number of quotes begins or
ends within quotes; then each file is read as a whole.
"""

from __future__ import annotations

import io
import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

import pandas as pd

from dtrees.cli.errors import CommandError

logger = logging.getLogger("dtrees")

#: Suffixes of CSV files.
TEXT_SUFFIXES = (".csv", ".tsv", ".txt")
#: Suffixes of Parquet files.
PARQUET_SUFFIXES = (".parquet", ".pq")
#: Suffixes of output tables; a name without one, such as that of a pipe, is CSV.
OUTPUT_SUFFIXES = ("", *TEXT_SUFFIXES, *PARQUET_SUFFIXES)
#: Suffixes of HTML pages; a name without one is used unchanged.
HTML_SUFFIXES = ("", ".html", ".htm")
#: Compressions by suffix.
COMPRESSION = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zip": "zip", ".zst": "zstd"}
#: The first characters of JSON, HTML and XML.
_OTHER_TEXT = re.compile(rb"(\xef\xbb\xbf)?\s*(\{\s*[\"}]|\[\s*[\[{\]\"]|<(!doctype|html|\?xml))", re.IGNORECASE)

_FLAGS = frozenset({"bool", "bool with gaps"})
#: Bytes of a block, which one thread parses as one chunk.
BLOCK_SIZE = 32 * 2**20


@dataclass(frozen=True)
class CSVForm:
    """The form of CSV files.

    Attributes
    ----------
    separator : str or None
        Character between values. None: a comma, or a tab for ``.tsv``.
    decimal : str
        Character before the fraction of a number.
    thousands : str or None
        Character between groups of digits.

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


@dataclass(frozen=True)
class Table:
    """The table of a DATA argument.

    Attributes
    ----------
    data : str
        The argument itself.
    paths : list of str
        Its files, in order.
    names : list of str
        Names of the columns.
    repeated : dict
        CSV columns that have the same name as an earlier one: their new names, and the name in the file.
    header : bytes
        The first line of CSV files; empty for Parquet.
    reading : dict
        Options of ``pandas.read_csv``: ``sep``, ``decimal`` and ``thousands``.
    elsewhere : bool
        Whether it is not here, but where the workers of a cluster are.
    """

    data: str
    paths: list[str]
    names: list[str]
    repeated: dict[str, str] = field(default_factory=dict)
    header: bytes = b""
    reading: dict[str, Any] = field(default_factory=dict)
    elsewhere: bool = False


def find_table(data: str, form: CSVForm, client: Any = None) -> Table:
    """Return the table of a DATA argument, from the beginning of its files.

    Parameters
    ----------
    data : str
        A file, a folder or a pattern with ``*``, ``?`` or ``[...]``.
    form : CSVForm
        Form of CSV files.
    client : distributed.Client or None
        Its workers are asked for files that are not here.

    Raises
    ------
    CommandError
        If there are no files, or both CSV and Parquet; if CSV files differ in their columns, or seem to have another separator.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/t.csv"
    >>> _ = open(path, "w").write("a,b,a")
    >>> table = find_table(path, CSVForm())
    >>> table.names, table.repeated
    (['a', 'b', 'a.1'], {'a.1': 'a'})
    """
    try:
        paths, kind = _find_files(data)
    except (CommandError, OSError):
        if client is None:
            raise
        return replace(_on_worker(client, find_table, data, form), elsewhere=True)
    if kind == "parquet":
        import dask.dataframe as dd

        return Table(data, paths, [str(name) for name in dd.read_parquet(paths).columns])
    header = _common_header(paths)
    separator = "\t" if ".tsv" in PurePath(paths[0]).suffixes else ","
    if form.separator is not None:
        separator = form.separator.replace("\\t", "\t")
    names = [str(name) for name in pd.read_csv(io.BytesIO(header), sep=separator, nrows=0).columns]
    other = next((other for other in ";\t|," if other in names[0]), None)
    if len(names) == 1 and other is not None:
        raise CommandError(f"{data!r} has a single column, {names[0]!r}, if split at {separator!r}; try --separator {other!r}.")
    given = pd.read_csv(io.BytesIO(header), sep=separator, header=None, dtype=str, keep_default_na=False).iloc[0].tolist()
    repeated = {called: name for name, called in zip(given, names, strict=True) if name and name != called}
    return Table(data, paths, names, repeated, header, {"sep": separator, "decimal": form.decimal, "thousands": form.thousands})


def read_table(table: Table, client: Any = None, *, text: Collection[str] = (), numbers: Collection[str] = ()) -> Any:
    """Return a table as a lazy Dask DataFrame.

    Parameters
    ----------
    table : Table
    client : distributed.Client or None
        Its workers can read files that are elsewhere.
    text : collection of str
        CSV columns that are text whatever their values.
    numbers : collection of str
        CSV columns that must hold numbers or flags: flags with missing values are not text there.
    """
    import dask.dataframe as dd

    if table.elsewhere:
        return _on_worker(client, read_table, replace(table, elsewhere=False), text=text, numbers=numbers)
    if not table.header:
        return dd.read_parquet(table.paths)
    compression = _compression(table.paths[0])
    dtypes, block_size = _csv_dtypes(table, [name for name in text if name in table.names], numbers, compression)
    sample = max(256_000, 4 * len(table.header))
    return dd.read_csv(table.paths, **table.reading, dtype=dtypes, blocksize=block_size, compression=compression, sample=sample)


def check_columns(wanted: Sequence[str], columns: Sequence[str], option: str, data: str) -> None:
    """Raise a :class:`CommandError` if an option names a column that the table does not have."""
    for name in wanted:
        if name not in columns:
            from dtrees.ensemble.estimators.parameters import suggestion  # imports scikit-learn

            raise CommandError(f"{option}: {data!r} has no column {name!r}. {suggestion(name, columns)}")


def column_list(values: Sequence[str]) -> list[str]:
    """Return the column names of a repeatable option, each value of which may contain several, separated by commas.

    >>> column_list(["id,name", "date"])
    ['id', 'name', 'date']
    """
    return [name.strip() for value in values for name in value.split(",") if name.strip()]


def check_destinations(written: Mapping[str, str | None], read: Collection[str]) -> None:
    """Raise if a file that an option names cannot be written, is read by the command, or is also named by another option.

    Parameters
    ----------
    written : mapping from str to str or None
        The file that each option names, by option; None or empty for no file.
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
    """Raise if the name of an output file has a suffix of another format.

    Parameters
    ----------
    option : str
    path : str
    suffixes : collection of str
        In lower case, with the dot; "" stands for none.
    what : str
        Description of the output.

    Raises
    ------
    CommandError
    """
    if PurePath(path).suffix.lower() not in suffixes:
        *others, last = (suffix for suffix in suffixes if suffix)
        raise CommandError(
            f"{option}: {path!r} is not a name for {what}; give one ending in {', '.join(others)}{' or ' * bool(others)}{last}."
        )


def check_new(option: str, path: str) -> None:
    """Raise if a file exists at the path for a synthetic table."""
    if os.path.lexists(path):
        raise CommandError(
            f"{option}: {path!r} exists, and would be written over with a synthetic table; give a new name. "
            f"To train on a table of your own: dtrees fit {path} --target COLUMN"
        )


def _find_files(data: str) -> tuple[list[str], str]:
    """Return the files of a DATA argument, and whether they are "csv" or "parquet"."""
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
    return [found if local else system.unstrip_protocol(found) for found in paths], kinds.pop()


def _common_header(paths: Sequence[str]) -> bytes:
    """Return the first line of CSV files, which must be the same in all."""
    import fsspec

    headers: list[bytes] = []
    for path in paths:
        with fsspec.open(path, "rb", compression=_compression(path)) as file:
            headers.append(file.readline())
        if not headers[-1].strip():
            raise CommandError(f"{path!r} is empty; a CSV file starts with a line of column names.")
        if headers[-1].strip() != headers[0].strip():
            raise CommandError(f"{path!r} has other columns than {paths[0]!r}; all files of a table must have the same, in the same order.")
    return headers[0] if headers[0].endswith(b"\n") else headers[0] + b"\n"


def _compression(path: str) -> str | None:
    return COMPRESSION.get(PurePath(path).suffix.lower())


def _is_table(path: str) -> bool:
    name = PurePath(PurePath(path).name.lower())
    inner = name.with_suffix("") if name.suffix in COMPRESSION else name
    return inner.suffix in TEXT_SUFFIXES + PARQUET_SUFFIXES and not name.name.startswith((".", "_"))


def _file_kind(system: Any, path: str) -> str:
    """Return the format of a file, from its first bytes: names can be misleading."""
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
    """Return a hint at files of a similar name in the same folder."""
    try:
        names = [PurePath(found).name for found in system.ls(str(PurePath(path).parent), detail=False)]
    except OSError:
        return " Nor does its folder."
    from dtrees.ensemble.estimators.parameters import suggestion  # imports scikit-learn

    hint = suggestion(PurePath(path).name, names)
    return f" {hint}" if hint.startswith("Did") else " Check the path."


def _on_worker(client: Any, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a function in a task of a cluster; what it computes by Dask, it computes there."""
    return client.submit(function, *arguments, **options, pure=False).result()


def _csv_dtypes(
    table: Table, text: Collection[str], numbers: Collection[str], compression: str | None
) -> tuple[dict[str, str], int | None]:
    """Return the dtype of each column of CSV files, and the size of the blocks to read them in, None for one block for each file.

    It is computed on the cluster, if there is one. Compressed files are one block each.
    """
    if not compression:
        blocks = _inspect(table, text, None, BLOCK_SIZE)
        if not any(n_quotes % 2 for n_quotes, _ in blocks):
            return merge_types((kinds for _, kinds in blocks), numbers), BLOCK_SIZE
        logger.warning("line breaks within quotes: each file is read as a whole, which takes memory and uses one thread")
    return merge_types((kinds for _, kinds in _inspect(table, text, compression, None)), numbers), None


def _inspect(
    table: Table, text: Collection[str], compression: str | None, block_size: int | None
) -> Sequence[tuple[int, dict[str, str] | ValueError]]:
    """Return for each block its number of quotes (if its file has several blocks), and its column types, or a parse error."""
    import dask
    from dask.bytes import read_bytes

    _, files = read_bytes(table.paths, delimiter=b"\n", blocksize=block_size, sample=False, compression=compression)
    inspect = dask.delayed(inspect_block)
    blocks = [
        inspect(table.header if index else b"", block, table.reading, text, len(file) > 1)
        for file in files
        for index, block in enumerate(file)
    ]
    return list(dask.compute(*blocks))


def inspect_block(
    header: bytes, block: bytes, reading: dict[str, Any], text: Collection[str], count: bool
) -> tuple[int, dict[str, str] | ValueError]:
    r"""Return the number of quotes of a block, if they are to be counted, and the type of each column, or a parse error.

    Types are integer, unsigned, float, bool, bool with gaps, text and empty.

    >>> inspect_block(b"a,b,c,d,e\n", b"1,x,,true,true\n2,y,,false,", {}, (), True)
    (0, {'a': 'integer', 'b': 'text', 'c': 'empty', 'd': 'bool', 'e': 'bool with gaps'})
    """
    n_quotes = block.count(b'"') if count else 0
    try:
        frame = pd.read_csv(io.BytesIO(header + block), dtype=dict.fromkeys(text, str), low_memory=False, **reading)
    except ValueError as error:
        return n_quotes, error
    return n_quotes, {str(name): _kind(frame[name]) for name in frame.columns}


def merge_types(blocks: Iterable[dict[str, str] | ValueError], numbers: Collection[str] = ()) -> dict[str, str]:
    """Return the dtype of each column from the types in its blocks; ``numbers`` are columns that must hold numbers or flags.

    >>> merge_types([{"a": "integer", "b": "float", "c": "text"}, {"a": "empty", "b": "integer", "c": "integer"}])
    {'a': 'float64', 'b': 'float64', 'c': 'string'}
    """
    kinds: dict[str, set[str]] = {}
    for block in blocks:
        if isinstance(block, ValueError):
            raise block
        for name, kind in block.items():
            kinds.setdefault(name, set()).update({kind} - {"no rows"})
    return {name: _dtype(found, name in numbers) for name, found in kinds.items()}


def _kind(column: pd.Series) -> str:
    if not len(column):
        return "no rows"
    if column.isna().all():
        return "empty"
    if column.dtype == object and pd.api.types.infer_dtype(column, skipna=True) == "boolean":
        return "bool with gaps"
    return {"i": "integer", "u": "unsigned", "f": "float", "b": "bool"}.get(column.dtype.kind, "text")


def _dtype(kinds: set[str], to_hold_numbers: bool) -> str:
    if kinds == {"bool"}:
        return "bool"
    if to_hold_numbers and kinds & _FLAGS and kinds <= {*_FLAGS, "empty"}:
        return "boolean"
    if kinds & {"text", *_FLAGS}:
        return "string"
    if kinds == {"integer"}:
        return "int64"
    if kinds and kinds <= {"integer", "unsigned"}:
        return "uint64"
    return "float64"


def _check_folder(option: str, folder: Path) -> None:
    if not folder.is_dir():
        raise CommandError(f"{option}: the folder {str(folder)!r} does not exist; create it first.")
    if not os.access(folder, os.W_OK):
        raise CommandError(f"{option}: the folder {str(folder)!r} is not writable; choose another.")


def _is_address(path: str) -> bool:
    return ("://" in path or "::" in path) and not path.startswith("file://")


def _place(path: str) -> str:
    """Return the identity of a file, which is the same for all its names."""
    return path if _is_address(path) else os.path.realpath(os.path.expanduser(path.removeprefix("file://")))
