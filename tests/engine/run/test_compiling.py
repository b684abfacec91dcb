from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from dtrees.engine.run import compiling


@pytest.mark.parametrize(("cached", "signatures"), [(False, []), (True, []), (False, ["compiled"])])
def test_compilation_is_noted_once(monkeypatch, caplog, cached: bool, signatures: list[str]) -> None:
    helped = []
    monkeypatch.setattr(compiling, "grow_together", SimpleNamespace(signatures=signatures))
    monkeypatch.setattr(compiling, "is_cached", lambda name: cached)
    monkeypatch.setattr(compiling, "compile_elsewhere", helped.append)
    monkeypatch.setattr(compiling, "_noted", False)
    # The command line has the log go to its own display.
    monkeypatch.setattr(logging.getLogger("dtrees"), "propagate", True)
    with caplog.at_level(logging.WARNING, logger="dtrees"):
        compiling.note_compilation()
        compiling.note_compilation()
    assert len(caplog.records) == len(helped) == (0 if cached or signatures else 1)
