"""The package: its public names exist, are documented and fast to import, and its requirements are correct."""

import functools
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jinja2
import pytest
import yaml

import dtrees
import dtrees.callbacks
import dtrees.errors
from dtrees.version import DISTRIBUTION

# --- the public names of dtrees: each is documented, with an example that runs, and is listed on the API page ---


API = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
NAMES = sorted(set(dtrees.__all__) - {"__version__"})
PUBLIC = {getattr(module, name): name for module in (dtrees, dtrees.callbacks, dtrees.errors) for name in module.__all__}
DOCUMENTED = {name: value for value, name in PUBLIC.items() if inspect.isclass(value) or inspect.isfunction(value)}


def test_all_but_the_version_and_types_of_functions_are_documented() -> None:
    assert set(PUBLIC.values()) - set(DOCUMENTED) == {"__version__", "Callback", "Monitor"}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_public_name_has_a_docstring_with_an_example(name: str) -> None:
    """Examples are run as doctests, from their modules."""
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


PARAMETERS = (Path(__file__).parents[1] / "docs" / "parameters.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in NAMES if hasattr(getattr(dtrees, name), "fit")])
def test_the_page_of_parameters_has_each_with_its_default(name: str) -> None:
    defaults = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", PARAMETERS.partition("\n## ")[0], re.MULTILINE))
    for parameter, default in getattr(dtrees, name)().get_params(deep=False).items():
        assert f"`{default!r}`" in defaults[parameter], parameter


# --- ``import dtrees`` is fast, and all public names exist ---


HEAVY = {"numba", "llvmlite", "dask", "distributed", "pandas", "pyarrow", "sklearn", "rich"}
ESTIMATORS = "from dtrees import RandomForestClassifier, GradientBoostingRegressor"


@functools.cache
def modules_after(statement: str) -> frozenset[str]:
    """Return the modules of a new interpreter after a statement, without those of dtrees."""
    script = f"{statement}\nimport sys\nprint(*[name for name in sys.modules if not name.startswith('dtrees')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return frozenset(done.stdout.split())


def test_import_loads_nothing_heavy() -> None:
    assert modules_after("import dtrees").isdisjoint(HEAVY)


def test_command_line_starts_without_heavy_packages() -> None:
    assert modules_after("import dtrees.cli.main").isdisjoint(HEAVY)


def test_estimators_load_neither_compiler_nor_cluster() -> None:
    assert modules_after(ESTIMATORS).isdisjoint({"numba", "llvmlite", "dask", "distributed"})


@pytest.mark.slow
def test_estimators_load_no_more_than_scikit_learn_does() -> None:
    """So they are imported about as fast as its ensembles."""
    ours, theirs = modules_after(ESTIMATORS), modules_after("import sklearn.ensemble")
    assert ours <= theirs
    large = {"sklearn.metrics", "sklearn.preprocessing", "sklearn.tree", "sklearn.ensemble", "sklearn.model_selection"}
    assert ours.isdisjoint(large)
    assert large <= theirs


def test_a_loaded_model_predicts_without_what_only_fits_need(tmp_path: Path) -> None:
    """But functions of scikit-learn that check for its own classes accept the model."""
    path = tmp_path / "model"
    dtrees.save(dtrees.DecisionTreeRegressor().fit([[0.0], [1.0]], [0.0, 1.0]), path)
    predicting = f"import dtrees\nmodel = dtrees.load({str(path)!r})\nmodel.predict([[0.0]])"
    modules = modules_after(predicting)
    assert modules.isdisjoint({"sklearn.ensemble", "sklearn.tree", "sklearn.metrics", "sklearn.model_selection", "dask", "distributed"})
    assert "sklearn.tree" in modules_after(f"{predicting}\nfrom sklearn.tree import export_text\nexport_text(model)")


@pytest.mark.parametrize("name", [name for name in dtrees.__all__ if name != "__version__"])
def test_every_export_is_there(name: str) -> None:
    assert getattr(dtrees, name).__name__ == name
    assert name in dir(dtrees)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'RandomForrest'"):
        dtrees.RandomForrest  # noqa: B018


@pytest.mark.slow
def test_an_unpickled_estimator_serves_dask_collections() -> None:
    """Unpickling imports the class from its own module, past the exports of the package.

    The header of an array takes no frames: a worker that coordinates a fit on Dask Arrays would need 27 MB more.
    """
    script = """
import sys
import dask.array as da
from dtrees.ensemble.in_process import backend_for
array = da.zeros((7, 2), dtype="float32")
backend = backend_for(array)
assert type(backend).__name__ == "DaskBackend"
header = backend.header(array)
assert header.shape == (0, 2) and header.dtype == "float32"
assert "dask.dataframe" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


# --- every dependency has a lower bound, which the jobs for certain versions use; dtrees is installed by its own name ---


ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / ".ci" / "requirements.py"
RECIPE = ROOT / ".ci" / "conda" / "meta.yaml"


@pytest.mark.skipif(not SCRIPT.exists(), reason="only in a checkout")
@pytest.mark.parametrize(("which", "relation"), [("newest", ">="), ("nightly", ">="), ("lowest", "=="), ("scikit-learn~=1.7.0", ">=")])
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
    assert "neither newest, nightly nor lowest" in done.stderr or "'sklearn' is no requirement" in done.stderr


@pytest.mark.skipif(not SCRIPT.exists(), reason="only in a checkout")
def test_no_page_nor_message_has_another_project_installed() -> None:
    """On package indexes, ``dtrees`` is another project."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == DISTRIBUTION != "dtrees"
    files = [ROOT / "README.md", ROOT / "pyproject.toml", *(ROOT / ".ci").rglob("*")]
    files += [path for folder in ("dtrees", "docs") for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md")]
    for path in filter(Path.is_file, files):
        found = re.search(r"(?<![\w-])dtrees\[[a-z]|(pip|conda) install [^`\n&]*(?<![\w-])dtrees\b", path.read_text(encoding="utf-8"))
        assert not found, f"{path}: {found[0] if found else ''}"


@pytest.mark.skipif(not RECIPE.exists(), reason="only in a checkout")
def test_the_conda_recipe_is_that_of_the_project() -> None:
    """As conda-build reads it: a template, then YAML. Versions, requirements, commands and files equal those of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    def load_file_regex(load_file: str, regex_pattern: str, from_recipe_dir: bool) -> re.Match[str] | None:
        assert from_recipe_dir
        return re.search(regex_pattern, (RECIPE.parent / load_file).read_text(encoding="utf-8"))

    template = jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(RECIPE.read_text(encoding="utf-8"))
    recipe = yaml.safe_load(template.render(load_file_regex=load_file_regex, PYTHON="python"))
    assert list(recipe) == ["package", "source", "build", "requirements", "test", "about"]  # the order that conda-forge requires
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


@pytest.mark.skipif(not (ROOT / "CITATION.cff").exists(), reason="only in a checkout")
def test_the_citation_and_the_changelog_are_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (\d\S+) - (\S+)$", changelog, re.MULTILINE)
    assert versions[0] == (citation["version"], str(citation["date-released"]))
    assert citation["version"] == dtrees.__version__


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.skipif(not WORKFLOWS, reason="only in a checkout")
def test_workflows_run_jobs_that_exist_on_the_promised_versions_of_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    promised = {one.rpartition(" ")[2] for one in project["classifiers"] if re.search(r":: 3\.\d+$", one)}
    texts = [path.read_text(encoding="utf-8") for path in WORKFLOWS]
    jobs = [job for text in texts for job in yaml.safe_load(text)["jobs"].values()]
    tested = {version for job in jobs for version in job.get("strategy", {}).get("matrix", {}).get("python", [])}
    assert tested == promised
    known = set(re.findall(r"[\w]+", re.search(r"\[(slow.*?)\]", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))[1]))
    asked = {word for job in jobs for word in job.get("strategy", {}).get("matrix", {}).get("job", [])}
    assert asked <= known
