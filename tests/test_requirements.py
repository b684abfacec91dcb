"""Every dependency has a lower bound, and the jobs for certain versions know it; dtrees is installed by its own name."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jinja2
import pytest
import yaml

import dtrees
from dtrees.version import DISTRIBUTION

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / ".ci" / "requirements.py"
RECIPE = ROOT / ".ci" / "conda" / "meta.yaml"


@pytest.mark.skipif(not SCRIPT.exists(), reason="only in a checkout")
@pytest.mark.parametrize(("which", "relation"), [("newest", ">="), ("lowest", "=="), ("scikit-learn~=1.7.0", ">=")])
def test_versions(which: str, relation: str) -> None:
    done = subprocess.run([sys.executable, SCRIPT, which], capture_output=True, text=True, check=True, timeout=60)
    requirements = done.stdout.split()
    asked_for = {line.partition(relation)[0] for line in requirements}
    assert {"numba", "dask[dataframe]", "distributed", "pytest", which if "=" in which else "scikit-learn"} <= asked_for
    assert not any("<" in line for line in requirements)


@pytest.mark.skipif(not SCRIPT.exists(), reason="only in a checkout")
@pytest.mark.parametrize("which", ["oldest", "sklearn~=1.7.0"])
def test_versions_of_nothing(which: str) -> None:
    done = subprocess.run([sys.executable, SCRIPT, which], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "neither newest nor lowest" in done.stderr or "'sklearn' is no requirement" in done.stderr


@pytest.mark.skipif(not SCRIPT.exists(), reason="only in a checkout")
def test_no_page_nor_message_has_another_project_installed() -> None:
    """On package indexes, ``dtrees`` is not this project."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == DISTRIBUTION != "dtrees"
    files = [ROOT / "README.md", ROOT / "pyproject.toml", *(ROOT / ".ci").rglob("*")]
    files += [path for folder in ("dtrees", "docs") for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md")]
    for path in filter(Path.is_file, files):
        found = re.search(r"(?<![\w-])dtrees\[[a-z]|(pip|conda) install [^`\n&]*(?<![\w-])dtrees\b", path.read_text(encoding="utf-8"))
        assert not found, f"{path}: {found[0] if found else ''}"


@pytest.mark.skipif(not RECIPE.exists(), reason="only in a checkout")
def test_the_conda_recipe_is_that_of_the_project() -> None:
    """As conda-build reads it: a template, then YAML. Versions, requirements, commands and files are those of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    def load_file_regex(load_file: str, regex_pattern: str, from_recipe_dir: bool) -> re.Match[str] | None:
        assert from_recipe_dir
        return re.search(regex_pattern, (RECIPE.parent / load_file).read_text(encoding="utf-8"))

    template = jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(RECIPE.read_text(encoding="utf-8"))
    recipe = yaml.safe_load(template.render(load_file_regex=load_file_regex, PYTHON="python"))
    assert list(recipe) == ["package", "source", "build", "requirements", "test", "about"]  # in the order that conda-forge asks for
    assert recipe["package"] == {"name": project["project"]["name"], "version": dtrees.__version__}
    assert (RECIPE.parent / recipe["source"]["path"]).resolve() == ROOT
    assert recipe["build"]["entry_points"] == [f"{name} = {target}" for name, target in project["project"]["scripts"].items()]
    python = project["project"]["requires-python"]
    run = [re.fullmatch(r"([\w-]+)(?:\[\w+\])?(.+)", one).groups() for one in project["project"]["dependencies"]]
    assert recipe["requirements"]["run"] == [f"python {python}", *(f"{name} {bounds}" for name, bounds in run)]
    build = [re.sub("(>=.*)", r" \1", one) for one in project["build-system"]["requires"]]
    assert recipe["requirements"]["host"] == [f"python {python.removeprefix('>=')}", "pip", *build]
    assert recipe["test"]["requires"] == recipe["requirements"]["host"][:2]
    about = {"summary": project["project"]["description"], "license": project["project"]["license"]}
    assert about.items() <= recipe["about"].items()
    assert (ROOT / recipe["about"]["license_file"]).is_file()
