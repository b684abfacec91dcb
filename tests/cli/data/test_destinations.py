"""Where a command writes: nothing that is read, nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtrees.cli.errors import CommandError
from dtrees.cli.tables import check_destinations, check_new


def test_free_places(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("a model of before")
    (tmp_path / "data").write_text("a,b")
    written = {"--output": str(tmp_path / "old"), "--checkpoint": str(tmp_path / "kept"), "--data": None}
    check_destinations(written, [str(tmp_path / "data")])
    check_destinations({"--checkpoint": "s3://bucket/kept", "--output": ""}, ["s3://bucket/data.csv"])
    check_new("--data", str(tmp_path / "new"))


@pytest.mark.parametrize(
    ("output", "checkpoint", "message"),
    [
        ("data", None, "--output: .*data' is what this command reads"),
        ("link", None, "--output: .*link' is what this command reads"),
        (None, "data", "--checkpoint: .*data' is what this command reads"),
        (None, "file:data", "--checkpoint: .* is what this command reads"),
        ("same", "same", "--checkpoint: .*same' is what --output names too, and would be written over"),
        ("same", "folder/../same", "is what --output names too"),
        (None, "no/such", "--checkpoint: the folder .* does not exist"),
    ],
)
def test_places_that_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str | None, checkpoint: str | None, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").write_text("a,b")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    if checkpoint is not None:
        checkpoint = checkpoint.replace("file:", f"file://{tmp_path}/")
    with pytest.raises(CommandError, match=message):
        check_destinations({"--output": output, "--checkpoint": checkpoint}, [str(tmp_path / "data")])


def test_addresses_that_are_taken() -> None:
    with pytest.raises(CommandError, match="is what this command reads"):
        check_destinations({"--checkpoint": "s3://bucket/data.csv"}, ["s3://bucket/data.csv"])


def test_a_made_up_table_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("a,b")
    with pytest.raises(CommandError, match=r"--data: .*mine.csv' exists.* dtrees fit .*mine.csv --target COLUMN"):
        check_new("--data", str(tmp_path / "mine.csv"))
