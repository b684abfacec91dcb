"""Print the requirements of dtrees and its tests, one a line: ``python .ci/requirements.py newest`` (or ``lowest``).

``newest`` and ``nightly`` leave out upper bounds, if there are any; ``lowest`` asks for exactly the lowest version that is allowed of each.
A requirement such as ``scikit-learn~=1.7.0`` asks for that version of a package, and the newest ones of all others.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path


def requirements(which: str) -> list[str]:
    """Return the requirements, with their bounds changed."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = re.match(r"[\w-]+", which)[0] if which not in ("newest", "nightly", "lowest") else None
    found = []
    for requirement in [*project["dependencies"], *project["optional-dependencies"]["test"]]:
        matched = re.fullmatch(r"([\w-]+)(\[[\w-]+\])?>=([\w.]+)(,<[\w.]+)?", requirement)
        if matched is None:
            raise ValueError(f"{requirement!r} in pyproject.toml is not of the form NAME>=VERSION or NAME>=VERSION,<VERSION")
        name, extra, lowest, _ = matched.groups("")
        found.append(which if name == pinned else f"{name}{extra}{'==' if which == 'lowest' else '>='}{lowest}")
    if pinned is not None and which not in found:
        raise ValueError(f"{pinned!r} is no requirement of dtrees or its tests")
    return found


if __name__ == "__main__":
    which = sys.argv[1]
    if not re.fullmatch(r"newest|nightly|lowest|[\w-]+[=~]=[\w.*]+", which):
        raise SystemExit(f"{which!r} is neither newest, nightly nor lowest, nor a version of a package as in scikit-learn~=1.7.0")
    print("\n".join(requirements(which)))  # noqa: T201
