"""How Sphinx builds the documentation site: ``sphinx-build -W docs build/site``. It needs no network."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import dtrees

project = "dtrees"
author = "The dtrees developers"
copyright = author
version = release = dtrees.__version__

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.doctest", "sphinx.ext.viewcode"]
root_doc = "index"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["examples"]
templates_path = ["_templates"]

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

autosummary_generate = True
autodoc_typehints = "none"
# Methods have pages of their own in the lists that autosummary makes.
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "furo"
html_title = f"dtrees {release}"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_show_sphinx = False


def _include_pages_of_the_root(app: Any, name: str, source: list[str]) -> None:
    """Replace each page that only refers to a file in the root by its text, and lead links to such files to their pages."""
    if name in ("changelog", "code_of_conduct", "contributing", "security"):
        source[0] = (Path(app.srcdir).parent / f"{name.upper()}.md").read_text(encoding="utf-8").replace("](docs/", "](")
    source[0] = re.sub(r"\]\((?:\.\./)?([A-Z_]+\.md)\)", lambda link: f"]({link[1].lower()})", source[0]).replace(
        "](readme.md)", "](index.md)"
    )


def _escape_names_of_attributes(app: Any, what: str, name: str, item: Any, options: Any, lines: list[str]) -> None:
    """Shapes such as (n, n_outputs_) are no links, which reStructuredText takes names with a trailing underscore for."""
    lines[:] = [re.sub(r"(?<=[(, ])(n_\w+|tree)_(?=[,) .]|$)", r"\1\_", line) for line in lines]


def setup(app: Any) -> None:
    """Connect what changes pages and docstrings on their way into the site."""
    app.connect("autodoc-process-docstring", _escape_names_of_attributes, priority=100)  # before numpydoc
    app.connect("source-read", _include_pages_of_the_root)
