"""A word to the user while kernels are compiled, which happens once on a machine and takes longer than a first fit should."""

from __future__ import annotations

import logging
from pathlib import Path

from dtrees.split.team import grow_together

_logger = logging.getLogger("dtrees")
_noted = False


def note_compilation() -> None:
    """Log, at most once a process, that kernels are about to be compiled, unless they are in Numba's cache."""
    global _noted
    if _noted or grow_together.signatures:
        return
    _noted = True
    if not any(Path(grow_together.stats.cache_path).glob("team.grow_together-*.nbi")):
        _logger.warning("dtrees compiles its kernels for the first fit on this machine; this takes a minute or two, once.")
