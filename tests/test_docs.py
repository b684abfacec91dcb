"""The README, the pages of docs/ and the scripts of docs/examples: examples run, commands exist, links are valid."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from dtrees.cli.main import main
from dtrees.cluster.reliability.fit import Settings
from tests.conftest import real_data

# --- the README and the pages of docs/: their Python examples run, the README's commands exist, links are valid ---


ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]


def name_of(page: Path) -> str:
    """Return a page's name in the site, such as ``guide/tuning``; for a page beside docs/, such as the README, its file name."""
    return page.relative_to(DOCS).with_suffix("").as_posix() if page.is_relative_to(DOCS) else page.stem


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return language and content of each code block."""
    return re.findall(r"^```([\w{}-]*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


EXAMPLES = {
    f"{name_of(page)}-{number}": content
    for page in PAGES
    for number, content in enumerate(content for language, content in blocks(page) if language == "python")
}


def is_slow(example: str) -> bool:
    """Return whether an example starts clusters, or needs kernels of slow tests only: forests of several targets, or by quantile."""
    return "LocalCluster" in example or ("Forest" in example and ("column_stack" in example or 'criterion="quantile"' in example))


README_COMMANDS = [
    command.strip()
    for language, content in blocks(ROOT / "README.md")
    if not language
    for line in content.splitlines()
    for command in line.split("&&")
]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if is_slow(text) else ()) for name, text in EXAMPLES.items()],
)
def test_python_example(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "example.py"
    script.write_text(EXAMPLES[name], encoding="utf-8")
    if name != "README-1":  # a process and its workers would take many seconds for the imports of this process
        monkeypatch.chdir(tmp_path)
        runpy.run_path(str(script), run_name="__main__")
        assert capsys.readouterr().out.strip()
        return
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=170
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_there_are_examples() -> None:
    assert {name.rpartition("-")[0] for name in EXAMPLES} >= {"README", "start", "guide/clusters", "guide/fit_predict", "guide/watching"}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 130


@pytest.mark.parametrize("command", [line for line in README_COMMANDS if line.startswith("dtrees ")])
def test_commands_of_the_readme_are_understood(command: str) -> None:
    """Their options exist; their input files need not."""
    _, name, *arguments = shlex.split(command)
    main.commands[name].make_context(name, arguments)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_the_index_lists_every_page_once() -> None:
    lines = [line for kind, text in blocks(DOCS / "index.md") if kind == "{toctree}" for line in text.splitlines()]
    pages = [name_of(page) for page in DOCS.rglob("*.md") if page != DOCS / "index.md"]
    assert sorted(line for line in lines if line and not line.startswith(":")) == sorted(pages)


PARTS = re.findall(
    r"`((?:cli|cluster|engine|ensemble|split|tree)\.[\w.]+)`", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", sorted(set(PARTS)))
def test_what_the_architecture_names_exists(name: str) -> None:
    """A package, a module, or a name in a module."""
    place, *rest = ROOT / "dtrees", *name.split(".")
    while rest and (place / rest[0]).is_dir():
        place /= rest.pop(0)
    if rest:
        module = (place / rest.pop(0)).with_suffix(".py")
        assert module.is_file()
        assert not rest or re.search(rf"\b(def|class) {rest[-1]}\b", module.read_text(encoding="utf-8"))


def test_the_page_of_settings_has_every_one() -> None:
    page = (DOCS / "settings.md").read_text(encoding="utf-8")
    for setting in fields(Settings):
        default = setting.default if isinstance(setting.default, str) else f"{setting.default:g}"
        assert f"| `dtrees.{setting.name.replace('_', '-')}` | {default} |" in page


# --- the scripts of docs/examples run on the real data, and print the expected lines ---


SCRIPTS = {
    "laptop": (["california_housing.csv"], "the loaded model predicts the same: True"),
    "categories": (["adult_train.csv", "adult_test.csv"], "subsets of categories: accuracy 0.87"),
    "validate_and_tune": (["california_housing.csv"], "R2 on held-out rows"),
    "intervals": (["california_housing.csv"], "boosting: intervals for 90 % cover"),
    "explain": (["adult_train.csv", "adult_test.csv"], "written: "),
    "survival": ([], "concordance on held-out rows 0.68"),
    "to_onnx": (["adult_train.csv", "adult_test.csv"], "the same labels: True"),
    "submit_and_watch": (["california_housing.csv"], "100 trees"),
    "lost_worker": (["adult_train.csv"], "the same model: True"),
}


def test_every_example_is_tested() -> None:
    assert {path.stem for path in (ROOT / "docs" / "examples").glob("*.py")} == set(SCRIPTS)


@pytest.mark.parametrize("name", [name for name, (files, _) in SCRIPTS.items() if files])
def test_an_example_without_its_files_says_how_to_run_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "to_onnx":
        pytest.importorskip("onnxruntime")
    path = ROOT / "docs" / "examples" / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(path)])
    with pytest.raises(SystemExit, match=rf"``python {name}\.py {' '.join(SCRIPTS[name][0])}``"):
        runpy.run_path(str(path), run_name="__main__")


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_example(name: str, tmp_path: Path) -> None:
    files, said = SCRIPTS[name]
    if name == "to_onnx":
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
    if name == "validate_and_tune":
        pytest.importorskip("optuna")
    command = [sys.executable, ROOT / "docs" / "examples" / f"{name}.py", *(real_data(file) for file in files)]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


# --- the reference is complete ---


def test_the_page_of_the_command_line_has_every_command_and_option() -> None:
    page = (DOCS / "command_line.md").read_text(encoding="utf-8")
    for name, command in main.commands.items():
        assert f"`dtrees {name}" in page
        options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
        assert [option for option in options if f"`{option}" not in page] == []


def test_the_page_of_settings_has_every_variable() -> None:
    page = (DOCS / "settings.md").read_text(encoding="utf-8")
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "dtrees").rglob("*.py"))
    assert [name for name in set(re.findall(r"\bDTREES_\w+", sources)) if f"`{name}`" not in page] == []
