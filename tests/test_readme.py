"""The examples of the README and of the guides in docs/ run: those marked as python."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from dtrees.cluster.fits import Settings

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = {
    f"{page.stem}-{number}": example
    for page in PAGES
    for number, example in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
}


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES.keys())
def test_python_example(example: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(example, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_there_are_examples() -> None:
    assert {name.rpartition("-")[0] for name in EXAMPLES} == {"README", "cluster"}
    assert len(EXAMPLES) == 4 + 4


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_the_guide_knows_every_setting() -> None:
    guide = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    for setting in fields(Settings):
        default = setting.default if isinstance(setting.default, str) else f"{setting.default:g}"
        assert f"| `dtrees.{setting.name.replace('_', '-')}` | {default} |" in guide
