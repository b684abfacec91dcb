"""Commands about a saved model: their output agrees with the model."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.metrics import accuracy_score, log_loss, r2_score

import dtrees
from dtrees.cli import check
from dtrees.cli.fit import flats
from dtrees.cli.main import main
from dtrees.interop import dtrees_numpy
from tests.cli.commands import fail, succeed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    frame = flats(400, seed=2)
    frame.to_csv(folder / "flats.csv", index=False)
    X = pd.read_csv(folder / "flats.csv").drop(columns="rent")
    model = dtrees.GradientBoostingRegressor(n_estimators=4, max_depth=3, random_state=0).fit(X, frame["rent"])
    dtrees.save(model, folder / "rent.dtrees")
    labels = np.where(frame["rent"] > 1000, "01", "2")
    dtrees.save(dtrees.RandomForestClassifier(3, max_depth=4, random_state=0).fit(X, labels), folder / "dear.dtrees")
    X.assign(dear=labels).to_csv(folder / "dear.csv", index=False)
    frame[:20].assign(word="x", other="y").to_csv(folder / "few.csv", index=False)
    frame.assign(rent=frame["rent"].where(np.arange(400) >= 30)).to_csv(folder / "gaps.csv", index=False)
    return folder


def test_evaluate_numbers(folder: Path) -> None:
    model, frame = dtrees.load(folder / "rent.dtrees"), pd.read_csv(folder / "gaps.csv").dropna(subset=["rent"])
    result = succeed("evaluate", folder / "rent.dtrees", folder / "gaps.csv", "--target", "rent", "--json")
    found = json.loads(result.stdout)
    assert found["n_rows"] == 370
    assert found["scores"]["R2"]["model"] == pytest.approx(r2_score(frame["rent"], model.predict(frame.drop(columns="rent"))))
    assert found["scores"]["R2"]["baseline"] == pytest.approx(0, abs=1e-9)
    assert "left out 30 of 400 rows" in result.stderr
    assert "R2" in succeed("evaluate", folder / "rent.dtrees", folder / "flats.csv", "--target", "rent").stdout


def test_evaluate_classes_that_look_like_numbers(folder: Path, tmp_path: Path) -> None:
    model, frame = dtrees.load(folder / "dear.dtrees"), pd.read_csv(folder / "dear.csv", dtype={"dear": str})
    X = frame.drop(columns="dear")
    found = json.loads(succeed("evaluate", folder / "dear.dtrees", folder / "dear.csv", "--target", "dear", "--json").stdout)["scores"]
    assert found["accuracy"]["model"] == pytest.approx(accuracy_score(frame["dear"], model.predict(X)))
    assert found["log loss"]["model"] == pytest.approx(log_loss(frame["dear"], model.predict_proba(X)))


def test_evaluate_with_a_report(folder: Path, tmp_path: Path) -> None:
    result = succeed("evaluate", folder / "rent.dtrees", folder / "flats.csv", "--target", "rent", "--report", tmp_path / "page.html")
    assert "Report written to" in result.stdout
    assert "400 rows (of " in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_evaluate_several_targets(kind: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(300, 3)), columns=["a", "b", "c"])
    if kind == "numbers":
        targets = pd.DataFrame({"one": frame["a"] * frame["b"], "two, or so": frame["c"] ** 2})
        model = dtrees.RandomForestRegressor(5, random_state=0)
    else:
        targets = pd.DataFrame({"one": np.where(frame["a"] > 0, "p", "q"), "two, or so": np.digitize(frame["b"], [-1, 1])})
        model = dtrees.RandomForestClassifier(5, random_state=0)
    model.fit(frame[:200], targets[:200].to_numpy(dtype=object if kind == "classes" else float))
    dtrees.save(model, tmp_path / "model")
    table = pd.concat([frame, targets], axis=1)
    table.loc[[3, 9], "one"], table.loc[[9, 20], "two, or so"] = None, None
    table.to_csv(tmp_path / "table.csv", index=False)
    command = "evaluate", tmp_path / "model", tmp_path / "table.csv", "--target", "one", "--target", "two, or so"
    result = succeed(*command, "--json")
    found, kept = json.loads(result.stdout), table.dropna()
    assert (found["targets"], found["n_rows"]) == (["one", "two, or so"], 297)
    assert "left out 3 of 300 rows, in which 'one' or 'two, or so' is missing" in result.stderr
    predicted, metric = model.predict(kept[["a", "b", "c"]]), r2_score if kind == "numbers" else accuracy_score
    for k, name in enumerate(targets):
        score = found["scores"][name]["R2" if kind == "numbers" else "accuracy"]["model"]
        assert score == pytest.approx(metric(targets.loc[kept.index, name].tolist(), predicted[:, k].tolist()))
    assert "Score of 'two, or so' on 297 rows" in succeed(*command, "--report", tmp_path / "page.html").stdout
    assert "two, or so" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_what_cannot_be_evaluated(folder: Path, tmp_path: Path) -> None:
    assert "holds text such as" in fail("evaluate", folder / "rent.dtrees", folder / "few.csv", "--target", "word")
    assert "'area' is a column that the model predicts from; give" in fail(
        "evaluate", folder / "rent.dtrees", folder / "flats.csv", "--target", "area"
    )
    assert "none of the model's classes, such as '01'" in fail("evaluate", folder / "dear.dtrees", folder / "few.csv", "--target", "other")
    several = dtrees.GradientBoostingRegressor(n_estimators=1, min_samples_leaf=1).fit(
        np.arange(4.0)[:, np.newaxis], np.arange(8.0).reshape(4, 2)
    )
    dtrees.save(several, tmp_path / "several.dtrees")
    assert "--target names 1 column, but" in fail("evaluate", tmp_path / "several.dtrees", folder / "flats.csv", "--target", "rent")
    assert "No such file" in fail("evaluate", folder / "nothing", folder / "flats.csv", "--target", "rent")


def test_what_is_compared_with_a_classifier(folder: Path, tmp_path: Path) -> None:
    """Classes that were not seen at fit count as wrong, and a target without any of the model's classes is refused."""
    frame = pd.read_csv(folder / "dear.csv", dtype={"dear": str})
    rent = pd.read_csv(folder / "flats.csv")["rent"]
    frame.assign(rent=rent).to_csv(tmp_path / "numbers.csv", index=False)
    frame.assign(rent=rent).to_parquet(tmp_path / "numbers.parquet")
    for name in ("numbers.csv", "numbers.parquet"):
        assert "none of the model's classes, such as '01'" in fail("evaluate", folder / "dear.dtrees", tmp_path / name, "--target", "rent")
    frame.loc[:9, "dear"] = "new"
    frame.to_csv(tmp_path / "new.csv", index=False)
    found = json.loads(succeed("evaluate", folder / "dear.dtrees", tmp_path / "new.csv", "--target", "dear", "--json").stdout)
    predicted = dtrees.load(folder / "dear.dtrees").predict(frame.drop(columns="dear"))
    assert found["scores"]["accuracy"]["model"] == pytest.approx(accuracy_score(frame["dear"], predicted))


def test_fractions_are_no_classes(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": np.arange(40.0), "y": np.arange(40) >= 20})
    dtrees.save(dtrees.DecisionTreeClassifier().fit(frame[["a"]], frame["y"].astype(int)), tmp_path / "model")
    frame.assign(y=np.where(frame["y"], 1.0, 0.75)).to_csv(tmp_path / "t.csv", index=False)
    found = json.loads(succeed("evaluate", tmp_path / "model", tmp_path / "t.csv", "--target", "y", "--json").stdout)
    assert found["scores"]["accuracy"]["model"] == 0.5  # 0.75 is not 0


def test_flags_with_a_gap_are_flags_as_at_the_fit(tmp_path: Path) -> None:
    frame = pd.DataFrame({"flag": np.arange(60) % 3 > 0, "word": np.where(np.arange(60) % 2, "7", "8")})
    frame["y"], frame["class"] = frame["flag"] + 0.5 * (frame["word"] == "7"), frame["flag"]
    X = frame[["flag", "word"]]
    models = {
        "y": dtrees.DecisionTreeRegressor(min_samples_leaf=1).fit(X, frame["y"]),
        "class": dtrees.DecisionTreeClassifier(min_samples_leaf=1).fit(X, frame["class"]),
    }
    gaps = frame.astype({"flag": object, "class": object})
    gaps.loc[[0, 5], "flag"], gaps.loc[7, "class"] = None, None
    gaps.to_csv(tmp_path / "gaps.csv", index=False)
    for target, model in models.items():
        dtrees.save(model, tmp_path / target)
        succeed("predict", tmp_path / target, tmp_path / "gaps.csv", "--output", tmp_path / "p.csv")
        wanted = model.predict(gaps[["flag", "word"]])
        np.testing.assert_array_equal(pd.read_csv(tmp_path / "p.csv")["prediction"], wanted)
        found = json.loads(succeed("evaluate", tmp_path / target, tmp_path / "gaps.csv", "--target", target, "--json").stdout)
        assert found["n_rows"] == (60 if target == "y" else 59)


def test_numbers_as_people_write_them(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": np.arange(1000.0, 1100.0)})
    model = dtrees.DecisionTreeRegressor().fit(frame, frame["a"])
    dtrees.save(model, tmp_path / "model")
    lines = [f"{value // 1000:.0f}.{value % 1000:03.0f},50" for value in frame["a"]]
    (tmp_path / "t.csv").write_text("\n".join(["a;y", *(f"{line};{line}" for line in lines)]))
    command = "predict", tmp_path / "model", tmp_path / "t.csv", "--output", tmp_path / "p.tsv", "--separator", ";", "--keep", "a"
    assert "such as '1.099,50'; convert it to numbers (astype(float), decimal= and thousands= of pandas.read_csv," in fail(*command)
    succeed(*command, "--decimal", ",", "--thousands", ".")
    found = pd.read_csv(tmp_path / "p.tsv", sep="\t")
    np.testing.assert_array_equal(found["a"], frame["a"] + 0.5)
    np.testing.assert_array_equal(found["prediction"], model.predict(frame + 0.5))
    assert "--decimal and --thousands are both '.'" in fail(*command, "--thousands", ".")
    assert "--decimal is ',,'" in fail(*command, "--decimal", ",,")


@pytest.mark.parametrize("name", ["p.xlsx", "p.json", "p.csv.gz", "p.feather"])
def test_names_that_are_no_tables(name: str, folder: Path, tmp_path: Path) -> None:
    assert f"{name}' is not a name for a table of predictions; give one ending in .csv, " in fail(
        "predict", folder / "rent.dtrees", folder / "flats.csv", "--output", tmp_path / name
    )
    assert not (tmp_path / name).exists()
    assert "is not a name for a page of HTML" in fail(
        "evaluate", folder / "rent.dtrees", folder / "flats.csv", "--target", "rent", "--report", tmp_path / name
    )


def test_show(folder: Path) -> None:
    model = dtrees.load(folder / "rent.dtrees")
    found = json.loads(succeed("show", folder / "rent.dtrees", "--json", "--importance", "split").stdout)
    assert (found["estimator"], found["n_trees"], found["parameters"]["max_depth"]) == ("GradientBoostingRegressor", 4, 3)
    wanted = dtrees.GradientBoostingRegressor(n_estimators=4, max_depth=3, random_state=0, importance_type="split")
    frame = pd.read_csv(folder / "flats.csv")
    wanted.fit(frame.drop(columns="rent"), frame["rent"])
    assert found["importances"] == dict(
        sorted(zip(model.feature_names_in_, wanted.feature_importances_, strict=True), key=lambda pair: -pair[1])
    )
    assert (found["n_columns"], found["depth"]["max"], type(found["leaves"]["mean"])) == (8, 3, float)
    text = succeed("show", folder / "rent.dtrees", "--columns", 2).stdout
    assert "column (2 of 8)" in text
    assert "max_depth" in text
    tree = succeed("show", folder / "rent.dtrees", "--tree", 3).stdout
    assert tree.rstrip("\n") == dtrees.export_text(model, tree_index=3, show_missing=True).rstrip("\n")
    assert "tree_index is 4; wants 0 to 3" in fail("show", folder / "rent.dtrees", "--tree", 4)


@pytest.mark.parametrize(
    ("what", "suffix", "start"), [("tree", "png", b"\x89PNG"), ("importance", "svg", b"<?xml"), ("metric", "pdf", b"%PDF")]
)
def test_plot(what: str, suffix: str, start: bytes, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / f"picture.{suffix}"
    assert f"Picture written to {path}" in succeed("plot", what, folder / "rent.dtrees", "-o", path).stdout
    assert path.read_bytes().startswith(start)


def test_what_cannot_be_drawn(folder: Path, tmp_path: Path) -> None:
    assert "ending in .png, .svg or .pdf" in fail("plot", "tree", folder / "rent.dtrees", "-o", tmp_path / "x.doc")
    assert "model is a RandomForestClassifier; wants a boosting estimator" in fail(
        "plot", "metric", folder / "dear.dtrees", "-o", tmp_path / "x.png"
    )
    (tmp_path / "model.svg").write_bytes((folder / "rent.dtrees").read_bytes())
    assert "is what this command reads" in fail("plot", "tree", tmp_path / "model.svg", "-o", tmp_path / "model.svg")
    assert not (tmp_path / "x.png").exists()


def test_export_of_a_tree(folder: Path, tmp_path: Path) -> None:
    model = dtrees.load(folder / "rent.dtrees")
    succeed("export", folder / "rent.dtrees", "--to", "dot", "--tree", 2, "-o", tmp_path / "tree.dot")
    assert (tmp_path / "tree.dot").read_text() == dtrees.export_graphviz(model, tree_index=2)
    succeed("export", folder / "rent.dtrees", "--to", "text", "-o", tmp_path / "tree.txt")
    assert (tmp_path / "tree.txt").read_text() == dtrees.export_text(model, max_depth=100, show_missing=True)
    assert "is what this command reads" in fail("export", folder / "rent.dtrees", "--to", "dot", "-o", folder / "rent.dtrees")


@pytest.mark.parametrize(("file", "name"), [("rent.c", "rent"), ("2 flats-é.c", "_2_flats__")])
def test_export_as_c(file: str, name: str, folder: Path, tmp_path: Path) -> None:
    """Functions have the name of the file."""
    assert "(c, " in succeed("export", folder / "rent.dtrees", "--to", "c", "-o", tmp_path / file).stdout
    assert (tmp_path / file).read_text() == dtrees.to_c(dtrees.load(folder / "rent.dtrees"), name=name)


def test_export_of_the_module_for_numpy(folder: Path, tmp_path: Path) -> None:
    """Tests of ``dtrees.interop`` check that its predictions are the same."""
    assert "(numpy, " in succeed("export", folder / "rent.dtrees", "--to", "numpy", "-o", tmp_path / "dtrees_numpy.py").stdout
    assert (tmp_path / "dtrees_numpy.py").read_bytes() == Path(dtrees_numpy.__file__).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["onnx", "xgboost", "treelite"])
def test_export_of_a_model(form: str, folder: Path, tmp_path: Path) -> None:
    """The files can be read by the tools; tests of ``dtrees.interop`` check that predictions are the same."""
    module = pytest.importorskip(form)
    path = tmp_path / ("model.json" if form == "xgboost" else "model")
    succeed("export", folder / "rent.dtrees", "--to", form, "-o", path)
    if form == "onnx":
        module.checker.check_model(module.load(path))
    elif form == "xgboost":
        assert module.Booster(model_file=path).num_boosted_rounds() == 4
    else:
        assert module.Model.deserialize(path).num_tree == 4


@pytest.mark.parametrize("compile_kernels", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_check(compile_kernels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[None] = []
    if not compile_kernels:
        monkeypatch.setattr("dtrees.cli.check._fit_a_little", lambda: fits.append(None))
    result = succeed("check", "--json")
    found = json.loads(result.stdout)
    assert found["ok"]
    assert found["differing"] == []
    assert found["versions"]["here"]["dtrees"] == dtrees.__version__
    assert found["versions"]["here"]["numpy"] == np.__version__
    assert math.isfinite(found["seconds_of_kernels"])
    assert len(fits) == (not compile_kernels)


def test_check_compiles_all_kinds_and_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[tuple[object, ...]] = []
    helpers: list[str | None] = []

    def fit(estimator: object, *rest: object) -> bool:
        fitted.append((type(estimator).__name__, getattr(estimator, "loss", None) or estimator.criterion, *rest))  # type: ignore[attr-defined]
        helpers.append(os.environ.get("DTREES_HELPER"))
        return True

    monkeypatch.setattr(check, "_fit_a_little", lambda: None)
    monkeypatch.setattr(check, "_fit", fit)
    monkeypatch.delenv("DTREES_HELPER", raising=False)
    assert json.loads(succeed("check", "--json").stdout)["kinds_of_fits"] == 0
    result = succeed("check", "--model", "tree", "--json")
    assert json.loads(result.stdout)["kinds_of_fits"] == len(fitted)
    assert f"{len(fitted)} of {len(fitted)} kinds of fits" in result.stderr
    assert {name for name, *_ in fitted} == {"DecisionTreeRegressor", "DecisionTreeClassifier"}
    fitted.clear()
    succeed("check", "--all")
    assert len({name for name, *_ in fitted}) == 8
    assert {
        ("GradientBoostingRegressor", "tweedie", 0, "sparse", 50_000),
        ("RandomForestClassifier", "gini", 3, "categories", 2_000),
    } <= set(fitted)
    assert set(helpers) == {"0"}
    assert "DTREES_HELPER" not in os.environ


@pytest.mark.parametrize("name", ["numbers", "categories", "sparse"])
def test_check_fits_tables_of_each_kind(name: str) -> None:
    assert check._fit(dtrees.DecisionTreeRegressor(), 0, name, 200)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    assert "_DTREES_COMPLETE" in succeed("completion", shell).stdout
    result = CliRunner(env={"_DTREES_COMPLETE": "bash_complete", "COMP_WORDS": "dtrees ev", "COMP_CWORD": "1"}).invoke(
        main, [], prog_name="dtrees"
    )
    assert result.stdout == "plain,evaluate\n"


def test_a_bag_predicts_and_is_evaluated(folder: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(folder / "flats.csv")
    bag = dtrees.BaggingRegressor(dtrees.GradientBoostingRegressor(n_estimators=3), 2).fit(frame.drop(columns="rent"), frame["rent"])
    dtrees.save(bag, tmp_path / "bag")
    found = json.loads(succeed("evaluate", tmp_path / "bag", folder / "flats.csv", "--target", "rent", "--json").stdout)
    assert found["scores"]["R2"]["model"] == pytest.approx(bag.score(frame.drop(columns="rent"), frame["rent"]))
    succeed("predict", tmp_path / "bag", folder / "flats.csv", "--output", tmp_path / "out.csv")
    np.testing.assert_allclose(pd.read_csv(tmp_path / "out.csv")["prediction"], bag.predict(frame.drop(columns="rent")))
    for command in (["show"], ["export", "--to", "text", "-o", tmp_path / "bag.txt"]):
        assert "holds a BaggingRegressor of 2 boosters, and this command shows the trees of one" in fail(*command, tmp_path / "bag")
    for form in ("c", "numpy"):
        assert f"({form}, " in succeed("export", tmp_path / "bag", "--to", form, "-o", tmp_path / f"bag.{form}").stdout
