from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from dtrees.engine import compiling


@pytest.mark.parametrize(("cached", "signatures"), [(False, []), (True, []), (False, ["compiled"])])
def test_compilation_is_noted_once(tmp_path, monkeypatch, caplog, cached: bool, signatures: list[str]) -> None:
    if cached:
        (tmp_path / "team.grow_together-1.py311.nbi").touch()
    stub = SimpleNamespace(signatures=signatures, stats=SimpleNamespace(cache_path=str(tmp_path)))
    monkeypatch.setattr(compiling, "grow_together", stub)
    monkeypatch.setattr(compiling, "_noted", False)
    with caplog.at_level(logging.WARNING, logger="dtrees"):
        compiling.note_compilation()
        compiling.note_compilation()
    assert len(caplog.records) == (0 if cached or signatures else 1)
