"""Files that are whole or not there, and nothing else that stays."""

from __future__ import annotations

import os
import time
from pathlib import Path

from dtrees.files import atomic_file


def test_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    """Those of this destination that have not been written to for a day: another process may be writing the others."""
    names = [
        ".model.dtrees.0123456789ab.tmp",
        ".model.dtrees.ba9876543210.tmp",
        ".other.dtrees.0123456789ab.tmp",
        ".model.dtrees.notes.tmp",
    ]
    for name in names:
        (tmp_path / name).write_bytes(b"half")
    two_days_ago = time.time() - 2 * 86_400
    for name in (names[0], *names[2:]):
        os.utime(tmp_path / name, (two_days_ago, two_days_ago))
    with atomic_file(tmp_path / "model.dtrees") as file:
        file.write(b"whole")
    assert {path.name for path in tmp_path.iterdir()} == {"model.dtrees", *names[1:]}
