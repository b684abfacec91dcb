"""Print the requirements of dtrees and its tests, one a line: ``python .ci/requirements.py newest`` (or ``lowest``).

``newest`` leaves out all upper bounds; ``lowest`` asks for exactly the lowest version that is allowed of each.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path


def requirements(which: str) -> list[str]:
    """Return the requirements, with their bounds changed."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = []
    for requirement in [*project["dependencies"], *project["optional-dependencies"]["test"]]:
        matched = re.fullmatch(r"([\w\[\]-]+)>=([\w.]+),<[\w.]+", requirement)
        if matched is None:
            raise ValueError(f"{requirement!r} in pyproject.toml is not of the form NAME>=VERSION,<VERSION")
        name, lowest = matched.groups()
        found.append(f"{name}=={lowest}" if which == "lowest" else f"{name}>={lowest}")
    return found


if __name__ == "__main__":
    which = sys.argv[1]
    if which not in ("newest", "lowest"):
        raise SystemExit(f"{which!r} is neither newest nor lowest")
    print("\n".join(requirements(which)))  # noqa: T201
