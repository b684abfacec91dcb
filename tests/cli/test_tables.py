"""Reading tables: which files, which columns, which dtypes."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dtrees.cli import tables
from dtrees.cli.errors import CommandError
from dtrees.cli.tables import CSVForm, Table, find_table, read_table


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "part-1.csv").write_text("a,b\n1,x\n2,y\n")
    (tmp_path / "part-2.csv").write_text("a,b\n3,z\n")
    (tmp_path / "notes.md").write_text("not a table")
    (tmp_path / ".hidden.csv").write_text("not a table")
    return tmp_path


def find(data: object, separator: str | None = None) -> Table:
    return find_table(str(data), CSVForm(separator))


def rows(data: object, separator: str | None = None) -> list[tuple[object, ...]]:
    return list(read_table(find(data, separator)).compute().itertuples(index=False, name=None))


def test_one_file_a_folder_and_a_pattern(folder: Path) -> None:
    assert rows(folder / "part-2.csv") == [(3, "z")]
    assert rows(folder) == rows(folder / "*.csv") == rows(folder / "*") == [(1, "x"), (2, "y"), (3, "z")]


def test_parquet_file_and_folder(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1.5, np.nan], "b": ["x", None]})
    frame.to_parquet(tmp_path / "one.parquet")
    frame.to_parquet(tmp_path / "two.pq")
    assert find(tmp_path).names == ["a", "b"]
    assert len(rows(tmp_path)) == 4


def test_parquet_is_told_by_its_content(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "table")
    assert rows(tmp_path / "table") == [(1,)]


def test_compressed_and_tab_separated(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,b\n1,x\n"))
    (tmp_path / "t.tsv").write_text("a\tb\n1\tx\n")
    (tmp_path / "t.txt").write_text("a;b\n1;x\n")
    assert rows(tmp_path / "t.csv.gz") == rows(tmp_path / "t.tsv") == rows(tmp_path / "t.txt", ";") == [(1, "x")]


def test_dtypes_are_those_of_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that look different at first: integers then a gap, integers then text, flags then a gap, nothing then text."""
    monkeypatch.setattr(tables, "BLOCK_SIZE", 4096)
    n = 2000
    lines = [f"{i},{i},{'true' if i % 2 else 'false'},,{i / 2},007" for i in range(n)]
    lines += ["1,x,true,late,3,08", ",5,,later,4,09"]
    path = tmp_path / "t.csv"
    path.write_text("gap,mixed,flag,late,number,code\n" + "\n".join(lines) + "\n")
    table = read_table(find(path), text=["code"])
    assert table.npartitions > 5
    frame = table.compute()
    assert frame["gap"].dtype == np.float64
    assert frame["number"].dtype == np.float64
    assert frame["mixed"].tolist()[:2] == ["0", "1"]
    assert frame["flag"].dropna().unique().tolist() == ["false", "true"]
    assert frame["late"].isna().sum() == n
    assert frame["code"].iloc[0] == "007"


@pytest.mark.parametrize("quotes", ['"', '""'])
def test_line_breaks_within_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, quotes: str) -> None:
    """Blocks may begin within quotes; if no block does, the blocks are used."""
    monkeypatch.setattr(tables, "BLOCK_SIZE", 400)
    wanted = [(i, f"first line\n{i},second line\nthird line {quotes[1:]}") for i in range(200)]
    frame = pd.DataFrame(wanted, columns=["a", "b"])
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert rows(tmp_path / "t.csv") == wanted
    assert "line breaks within quotes" in caplog.text
    caplog.clear()
    (tmp_path / "u.csv").write_text("a,b\n" + "".join(f'{i},"a, b"\n' for i in range(200)))
    table = read_table(find(tmp_path / "u.csv"))
    assert table.npartitions > 3
    assert table.compute()["b"].unique().tolist() == ["a, b"]
    assert not caplog.text


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfa,b\n1,2\n")
    assert find(tmp_path / "t.csv").names == ["a", "b"]
    assert list(read_table(find(tmp_path / "t.csv")).columns) == ["a", "b"]


def test_quoted_names_and_values(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('"a, b",c\n"x, y",1\n')
    assert find(tmp_path / "t.csv").names == ["a, b", "c"]
    assert rows(tmp_path / "t.csv") == [("x, y", 1)]


def test_columns_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,a,,a.1,c,\n1,2,3,4,5,6,7\n")
    table = find(tmp_path / "t.csv")
    assert table.repeated == {"a.2": "a"}
    assert table.names == list(read_table(find(tmp_path / "t.csv")).columns) == ["a", "b", "a.2", "Unnamed: 3", "a.1", "c", "Unnamed: 6"]
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "t.parquet")
    assert find(tmp_path / "t.parquet").repeated == {}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"", "is empty"),
        ("t.csv", b"a;b\n1;2\n", "try --separator ';'"),
        ("t.parquet", b"a,b\n1,2\n", "neither a Parquet file nor CSV"),
        ("t.bin", b"\0\1\2", "neither a Parquet file nor CSV"),
        ("t.json", b'[{"a": 1, "b": 2}]', "JSON, Excel and other formats are not read"),
        ("t.csv", b' {\n"a": [1, 2]}', "neither a Parquet file nor CSV"),
        ("t.json.gz", gzip.compress(b'{"a": 1}\n{"a": 2}\n', mtime=0), "neither a Parquet file nor CSV"),
        ("t.xlsx", b"PK\3\4\24\0", "neither a Parquet file nor CSV"),
        ("t.xls", b"<html><table>", "neither a Parquet file nor CSV"),
    ],
)
def test_files_that_are_no_tables(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CommandError, match=message):
        read_table(find(tmp_path / name))


@pytest.mark.parametrize("header", ["[id],[b]", "<DATE>,<OPEN>", "{a},b"])
def test_names_with_brackets_are_csv(tmp_path: Path, header: str) -> None:
    (tmp_path / "t.csv").write_text(f"{header}\n1,2\n")
    assert rows(tmp_path / "t.csv") == [(1, 2)]


def test_files_that_are_not_there(folder: Path) -> None:
    with pytest.raises(CommandError, match=r"does not exist. Did you mean 'part-1.csv'"):
        find(folder / "prat-1.csv")
    with pytest.raises(CommandError, match="does not exist. Nor does its folder"):
        find(folder / "no" / "such.csv")
    with pytest.raises(CommandError, match="No file matches"):
        find(folder / "x*.csv")
    (folder / "empty").mkdir()
    with pytest.raises(CommandError, match="has no CSV or Parquet files"):
        find(folder / "empty")


def test_files_that_do_not_go_together(folder: Path) -> None:
    (folder / "part-3.csv").write_text("a,c\n1,2\n")
    with pytest.raises(CommandError, match=r"part-3.csv' has other columns than"):
        read_table(find(folder))
    pd.DataFrame({"a": [1]}).to_parquet(folder / "part-4.parquet")
    with pytest.raises(CommandError, match="both CSV and Parquet"):
        find(folder)
