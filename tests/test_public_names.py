"""The public names of dtrees: each is documented, with an example that runs, and has its place in the API page."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import dtrees

API = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
NAMES = sorted(set(dtrees.__all__) - {"__version__"})


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_a_docstring_with_an_example(name: str) -> None:
    """Examples are run as doctests, from the modules that they are in."""
    text = inspect.getdoc(getattr(dtrees, name))
    assert text is not None
    assert ">>>" in text


def test_the_api_page_lists_the_public_names() -> None:
    assert sorted(re.findall(r"^   (\w+)$", API, re.MULTILINE)) == NAMES
