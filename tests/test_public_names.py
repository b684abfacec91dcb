"""The public names of dtrees: each is documented, with an example that runs, and has its place in the API page."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import dtrees
import dtrees.callbacks
import dtrees.errors

API = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
NAMES = sorted(set(dtrees.__all__) - {"__version__"})
PUBLIC = {getattr(module, name): name for module in (dtrees, dtrees.callbacks, dtrees.errors) for name in module.__all__}
DOCUMENTED = {name: value for value, name in PUBLIC.items() if inspect.isclass(value) or inspect.isfunction(value)}


def test_all_but_the_version_and_types_of_functions_are_documented() -> None:
    assert set(PUBLIC.values()) - set(DOCUMENTED) == {"__version__", "Callback", "Monitor"}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_public_name_has_a_docstring_with_an_example(name: str) -> None:
    """Examples are run as doctests, from the modules that they are in."""
    text = inspect.getdoc(DOCUMENTED[name])
    assert text is not None
    assert ">>>" in text


@pytest.mark.parametrize("name", [name for name in DOCUMENTED if inspect.isclass(DOCUMENTED[name])])
def test_public_methods_have_docstrings(name: str) -> None:
    kind = DOCUMENTED[name]
    members = {member: inspect.getattr_static(kind, member) for member in dir(kind) if not member.startswith("_")}
    own = {member: value for member, value in members.items() if inspect.isfunction(value) or isinstance(value, property | classmethod)}
    assert [member for member, value in own.items() if not inspect.getdoc(value)] == []


def test_the_api_page_lists_the_public_names() -> None:
    assert sorted(re.findall(r"^   (\w+)$", API, re.MULTILINE)) == NAMES
