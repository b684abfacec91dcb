"""``dtrees fit``: from a table to a scored model; ``dtrees tune``: with the best parameters of a cross-validated search.

``dtrees demo`` fits a synthetic table, for users without data.

``options`` are declared in :mod:`dtrees.cli.main`; ``settings`` are those of ``--set``, ``form`` is the form of CSV files.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import dask
import numpy as np
import pandas as pd
from rich.console import Console

import dtrees
from dtrees.cli import models, tables, target, target_columns
from dtrees.cli.clusters import cluster
from dtrees.cli.display import Display, plural
from dtrees.cli.errors import CommandError, describe
from dtrees.cli.target_columns import TargetColumns, check_report
from dtrees.engine.plan.plans import Progress
from dtrees.engine.threads import available_cores
from dtrees.ensemble.callbacks import ProgressBar
from dtrees.ensemble.displays import Lines, TerminalBar, figures, in_words
from dtrees.ensemble.estimators.intervals import margin_of
from dtrees.ensemble.input.target import OUTLIERS, VALUES
from dtrees.files import atomic_file
from dtrees.version import needed

_DEFAULT_TEST_SIZE = 0.2
_DEMO_TARGET = "rent"
#: Options of ``dtrees fit`` that the search does not have.
_NOT_IN_TUNE = dict.fromkeys(("validation", "checkpoint", "checkpoint_interval", "scheduler", "intervals"))
#: The most rounds of boosting, unless ``n_estimators`` is set: trials end when they do not improve.
_MOST_ROUNDS = 1000


def fit(**given: Any) -> None:
    """Run the command ``dtrees fit`` with its options as arguments."""
    options = SimpleNamespace(**given)
    display = Display(as_json=options.as_json)
    parameters = check(options)
    inputs = Inputs(options, display)
    if options.scheduler is None:
        inputs.find(None)
    with cluster(display, options.scheduler, options.n_workers, options.threads_per_worker) as client:
        if options.scheduler is not None:
            inputs.find(client)
        found = train_and_score(inputs, parameters, options, display, client, _fit)
    conclude(found, options, display)


def tune(**given: Any) -> None:
    """Run the command ``dtrees tune`` with its options as arguments."""
    options = SimpleNamespace(**given, **_NOT_IN_TUNE)
    if (options.storage is None) != (options.study is None):
        raise click.UsageError("--storage and --study go together: where studies are kept, and which one this is")
    if models.FAMILIES[options.model].kind == OUTLIERS:
        raise click.UsageError(f"tune scores trials by a target, but --model {options.model} learns none; use dtrees fit")
    optuna = needed("optuna", "tune")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    display = Display(as_json=options.as_json)
    parameters = check(options)
    if models.FAMILIES[options.model].boosts:
        parameters = {"n_estimators": _MOST_ROUNDS} | parameters
    inputs = Inputs(options, display)
    inputs.find(None)
    with display.warnings():
        found = train_and_score(inputs, parameters, options, display, None, _search)
    conclude(found, options, display)


#: From an unfitted estimator, X, y, further arguments of fit, options and display to a fitted one, and what else there is to tell.
Train = Callable[[Any, Any, Any, dict[str, Any], Any, Display], tuple[Any, dict[str, Any]]]


def train_and_score(
    inputs: Inputs, parameters: dict[str, Any], options: Any, display: Display, client: Any, train_: Train
) -> dict[str, Any]:
    """Read the tables, train, save, score and report; return the results."""
    columns, wanted = inputs.columns, inputs.target
    task, train, test, watched = _rows_and_task(inputs, options, display)
    calibration = None
    if options.intervals:
        train, calibration = target_columns.hold_out(options.model, train, options.seed)
    n_train, n_test, n_calibration = (0 if rows is None else len(rows) for rows in (train, test, calibration))
    if n_train == 0 or (test is not None and n_test == 0):
        raise CommandError(f"{n_train:,} rows are for training and {n_test:,} for the test; give more data or another --test-size.")
    if options.intervals:  # too few rows are refused before the fit
        margin_of(np.zeros(n_train if calibration is None else n_calibration), target_columns.COVERAGE)

    estimator = models.build(options.model, task, parameters, options.seed)
    display.note(f"{type(estimator).__name__} on {plural(n_train, 'row')} and {plural(len(columns), 'column')}.")
    y, beside = wanted.taken(train)
    estimator, more = train_(estimator, train[columns], y, beside | watched, options, display)
    found = {"estimator": type(estimator).__name__, "task": task, **wanted.as_document({}), "columns": columns, "n_train": n_train} | more
    if calibration is not None:
        with display.stage("Calibrating intervals"):
            estimator.calibrate(calibration[columns], calibration[options.target])
        display.note(f"Intervals are calibrated on {plural(len(estimator.conformity_scores_), 'further row')}.")
    if options.output:  # before scoring: if that fails, the fitted model is not lost
        dtrees.save(estimator, options.output)
    if test is not None:
        with display.stage("Scoring"):
            scores = wanted.score(estimator, test, columns, train, client)
        ((trivial, figures),) = scores.values()
        rows = plural(n_test, "held-out row") if options.test is None else f"{plural(n_test, 'row')} of {options.test}"
        display.scores(f"Score on {rows}", figures, trivial)
        if options.intervals:
            found["intervals"] = target_columns.score_intervals(estimator, test, columns, options.target, client)
            display.result(target_columns.intervals_in_words(found["intervals"], rows))
        found |= {"n_test": n_test} | wanted.as_document(scores)
    if options.report:
        said = "of the fit" if options.test is None and options.test_size == 0 else f"of {options.test}" if options.test else "held out"
        wanted.report(estimator, train if test is None else test, columns, options.report, said, display, seed=options.seed)
    return found


def conclude(found: dict[str, Any], options: Any, display: Display) -> None:
    """Print the path of the model, and the results as JSON if requested."""
    if options.output:
        display.result(f"Model saved to {options.output}. Use it with: dtrees predict {options.output} DATA --output FILE")
    else:
        display.note("The model was not saved; --output MODEL does that.")
    display.document({**found, "model": options.output, "report": options.report})


def _rows_and_task(inputs: Inputs, options: Any, display: Display) -> tuple[str, Any, Any, dict[str, Any]]:
    """Return the task, the training rows, the test rows, if any, and evaluation sets, by argument of fit."""
    wanted, name = inputs.target, options.target
    frame, found = inputs.read("DATA", numbers=[] if wanted.kind == VALUES else wanted.names)
    if wanted.kind == VALUES:
        summary = found[name]
        task, reason = target.choose_task(summary, name, options.task)
    else:
        (task,), reason = models.FAMILIES[options.model].classes, f"--model {options.model}"
    if options.intervals and task == "classification":
        raise CommandError(
            f"--intervals is for numbers, but the task is classification: {reason}. Leave it out, or give --task regression."
        )
    display.note(f"Task: {task} ({reason}).")
    if task == "classification" and (example := target.number_as_text(summary.distinct)):
        display.warn(f"{name!r} looks like numbers ({example!r}), which makes {summary.count} classes. {target.AS_NUMBERS}")
    wanted.count_incomplete(frame, found, display)
    tasks = {name: task} if wanted.kind == VALUES else {}
    frame = wanted.complete(frame, found, tasks)
    train, test, watched = frame, None, {}
    if options.test is not None:
        test = inputs.read_further("--test", frame, tasks, found)
    elif test_size := _DEFAULT_TEST_SIZE if options.test_size is None else options.test_size:
        train, test = target.split(frame, test_size, options.seed, wanted.query)
    if options.validation is not None:
        rows = inputs.read_further("--validation", frame, tasks, found)
        y, beside = wanted.taken(rows)
        watched["eval_set"] = {"validation": (rows[inputs.columns], y, *beside.values())}
    return task, train, test, watched


def check(options: Any) -> dict[str, Any]:
    """Check all options that can be checked before starting a cluster and reading files; return the parameters of the model."""
    if options.test is not None and options.test_size is not None:
        raise click.UsageError("--test and --test-size exclude each other: one gives the test data, the other draws it from DATA")
    family = models.FAMILIES[options.model]
    if options.validation is not None and not family.boosts:
        boosting = ", ".join(name for name, one in models.FAMILIES.items() if one.boosts)
        raise click.UsageError(f"--validation is for --model {boosting}, which are trained round by round; --model is {options.model}")
    if options.task != "auto" and family.kind != VALUES:
        raise click.UsageError(f"--task is for models that predict a number or a class; --model is {options.model}")
    if options.checkpoint is not None and options.model == "tree":
        raise click.UsageError("--checkpoint is for models of several trees; --model is tree")
    if options.checkpoint is None and options.checkpoint_interval is not None:
        raise click.UsageError("--checkpoint-interval is for --checkpoint, which is not given")
    loss = [] if options.loss is None else [f"loss={options.loss}"]
    parameters = models.read_parameters(options.params, [*options.settings, *loss])
    if options.validation is None and "early_stopping_rounds" in parameters:
        raise click.UsageError("early_stopping_rounds stops by the scores on --validation DATA; or use -p n_iter_no_change=N")
    if options.intervals:
        parameters = target_columns.with_intervals(options.model, parameters)
    parameters = models.checked_parameters(options.model, parameters)
    check_report(options.report)
    return parameters


def choose_features(names: Sequence[str], targets: TargetColumns, features: Sequence[str], drop: Sequence[str], data: str) -> list[str]:
    """Return the columns to train on, in the table's order."""
    targets.check(names, data)
    wanted, dropped = tables.column_list(features), tables.column_list(drop)
    tables.check_columns(wanted, names, "--features", data)
    tables.check_columns(dropped, names, "--drop", data)
    answers = [*map(repr, targets.names)]
    if given := set(wanted) & set(targets.names):
        raise CommandError(f"--features names the target {min(given)!r}; a model that is given the answer learns nothing; leave it out.")
    columns = [name for name in names if name not in {*targets.names, *dropped} and (not wanted or name in wanted)]
    if not columns:
        besides = f" besides the target {' and '.join(answers)}" if answers else ""
        raise CommandError(f"No columns are left to train on{besides}; check --features and --drop.")
    return columns


class Inputs:
    """The tables of one command, and the columns to train on.

    Tables are identified by the options that name them: ``DATA``, ``--test`` and ``--validation``.
    """

    def __init__(self, options: Any, display: Display) -> None:
        self._options, self._display = options, display
        self._client: Any = None
        self._tables: dict[str, tables.Table] = {}
        self.columns: list[str] = []
        self.target = TargetColumns.of(models.FAMILIES[options.model].kind, [options.target], options.qid, options.event)

    def find(self, client: Any) -> None:
        """Check that files exist, here or for a client's workers, and have the columns that options name."""
        options, self._client = self._options, client
        table = tables.find_table(options.data, options.form, client)
        self._display.repeated_names(options.data, table.repeated)
        self.columns = choose_features(table.names, self.target, options.features, options.drop, options.data)
        self._tables["DATA"] = table
        for option, data in (("--test", options.test), ("--validation", options.validation)):
            if data is not None:
                self._tables[option] = tables.find_table(data, options.form, client)
                tables.check_columns([*self.columns, *self.target.names], self._tables[option].names, option, data)
        read = [path for table in self._tables.values() for path in table.paths] + ([options.params] if options.params else [])
        tables.check_destinations({"--output": options.output, "--checkpoint": options.checkpoint, "--report": options.report}, read)

    def read(self, option: str, **kinds: Collection[str]) -> tuple[Any, dict[str, target.TargetSummary]]:
        """Load a table into the cluster's memory, and see what the columns of its target hold.

        ``kinds`` are options of :func:`read_table`.
        """
        options, table = self._options, self._tables[option]
        with self._display.stage(f"Reading {table.data}"):
            try:
                frame = tables.read_table(table, self._client, **kinds)[[*self.columns, *self.target.names]].persist()
                return frame, {name: target.summarize(frame[name]) for name in self.target.names}
            except FileNotFoundError as error:
                if options.scheduler is None:
                    raise
                path = error.filename or table.data
                raise CommandError(f"Workers of {options.scheduler} cannot read {path}; put the data where all of them find it.") from error
            except KeyError as error:  # for CSV files, the headers have already been compared
                lack = f"some of its files lack columns that the first has ({error.args[0]})"
                raise CommandError(f"Cannot read {table.data}: {lack}.") from error
            except ValueError as error:
                raise CommandError(f"Cannot read {table.data}: {describe(error)}") from error

    def read_further(self, option: str, frame: Any, tasks: dict[str, str], summaries: dict[str, target.TargetSummary]) -> Any:
        """Return the complete rows of another table than the one to train on."""
        wanted = [*self.columns, *self.target.names]
        # A column that is text in one of the tables is text in both; columns of numbers or flags are read as such.
        text = [column for column in wanted if str(frame.dtypes[column]).startswith("str")]
        rows, found = self.read(option, text=text, numbers=[column for column in wanted if column not in text])
        for name in self.target.targets:
            if found[name].kinds and (target.TEXT in found[name].kinds) != (target.TEXT in summaries[name].kinds):
                raise CommandError(f"{option}: the target {name!r} holds text in one of the two tables and numbers in the other.")
        self.target.count_incomplete(rows, found, self._display, f"{option.removeprefix('--')} rows")
        return self.target.complete(rows, {name: target.merge([summaries[name], one]) for name, one in found.items()}, tasks)


def _fit(estimator: Any, X: Any, y: Any, beside: dict[str, Any], options: Any, display: Display) -> tuple[Any, dict[str, Any]]:
    """Fit with progress, and print a summary; if a column cannot be used, say how to leave it out."""
    given = {"checkpoint": options.checkpoint, "checkpoint_interval": options.checkpoint_interval}
    more = beside | {name: value for name, value in given.items() if value is not None}
    bar, start = _Bar(display.stderr), time.monotonic()
    try:
        estimator.fit(X, y, callbacks=[bar], **more)
    except ValueError as error:
        if "X column" not in str(error):
            raise
        raise CommandError(f"{describe(error).rstrip('.')}. Or leave the column out with --drop.") from error
    count = "done" if bar.latest is None else plural(bar.latest.done, estimator._UNIT)
    scores = "" if bar.latest is None else in_words(figures(bar.latest))
    display.note(f"Training: {count} in {time.monotonic() - start:.1f} s{scores and ', '}{scores}")
    return estimator, {}


class _Bar(ProgressBar):
    """A progress bar of a fit in the notes of the command, which stores the progress."""

    latest: Progress | None = None

    def __init__(self, stderr: Console) -> None:
        self._stderr = stderr

    def _display_of(self, unit: str) -> TerminalBar | Lines:
        return TerminalBar(unit, self._stderr, transient=True) if self._stderr.is_terminal else Lines(unit)

    def __call__(self, progress: Progress) -> None:
        """Update with a finished tree or round."""
        super().__call__(progress)
        self.latest = progress


def _search(estimator: Any, X: Any, y: Any, beside: Any, options: Any, display: Display) -> tuple[Any, dict[str, Any]]:
    """Search for parameters, and print trials as they end; return the fitted estimator, and the results."""
    X, y, beside = dask.compute(X, y, beside)
    estimator.n_jobs = max(1, available_cores() // options.jobs)
    start = time.monotonic()

    def tell(study: Any, trial: Any) -> None:
        value = "pruned" if trial.value is None or trial.state.name == "PRUNED" else f"{trial.value:.5g}"
        best = "" if trial.number != study.best_trial.number else ", the best so far"
        asked = ", ".join(f"{name}={_short(value)}" for name, value in trial.params.items())
        display.note(f"Trial {trial.number + 1}: {value}{best} ({asked or 'the model as it is'})")

    study, model = dtrees.tune(
        estimator, X, y, n_trials=options.trials, timeout=options.timeout, cv=options.folds, scoring=options.scoring, n_jobs=options.jobs,
        random_state=options.seed, storage=options.storage, study_name=options.study, callbacks=[tell], **beside,
    )  # fmt: skip
    model.n_jobs = None  # as in dtrees fit
    display.note(f"Tuning: {plural(len(study.trials), 'trial')} in {time.monotonic() - start:.1f} s")
    best = study.best_trial
    parameters = {**best.params} | ({"n_estimators": model.n_estimators} if models.FAMILIES[options.model].boosts else {})
    judged_by = study.user_attrs["judged_by"]
    display.result(f"Best mean {judged_by} of {options.folds} folds: {best.value:.5g} (trial {best.number + 1}), with these parameters:")
    display.result(" ".join(f"-p {name}={_short(value)}" for name, value in parameters.items()) or "those of the model as it is")
    return model, {"parameters": parameters, "judged_by": judged_by, "best": best.value, "n_trials": len(study.trials)}


def _short(value: Any) -> str:
    """Return a value of a parameter as short text.

    >>> _short(0.123456789), _short(7), _short("sqrt")
    ('0.12346', '7', 'sqrt')
    """
    return f"{value:.5g}" if isinstance(value, float) else str(value)


#: Options of ``dtrees fit`` that the demo does not set.
_NO_OPTION = dict.fromkeys(("qid", "event", "loss", "test_size", "test", "validation", "checkpoint", "checkpoint_interval", "intervals"))


def demo(*, rows: int, data: str | None, **options: Any) -> None:
    """Run the command: ``rows`` of a synthetic table, a file to store them in, and options of ``dtrees fit``."""
    display = Display(as_json=options["as_json"])
    with tempfile.TemporaryDirectory(prefix="dtrees-demo-") as folder:
        path = data or str(Path(folder) / "flats.csv")
        tables.check_suffix("--data", path, ("", ".csv", ".txt"), "a CSV file")
        tables.check_new("--data", path)
        tables.check_destinations({"--data": path, "--output": options["output"], "--report": options["report"]}, [])
        with atomic_file(path) as file:
            flats(rows, options["seed"]).to_csv(file, index=False)
        display.note(f"Generated {rows:,} flats; the rent is to be predicted from the other columns.")
        fit(data=path, target=_DEMO_TARGET, task="auto", features=(), drop=(), form=tables.CSVForm(), **_NO_OPTION, **options)
    table = f"{data} --target {_DEMO_TARGET}" if data else "DATA --target COLUMN"
    display.result(f"Next: dtrees fit {table} --model forest --output model.dtrees")


def flats(n_rows: int, seed: int) -> pd.DataFrame:
    """Return synthetic flats and their monthly rents.

    The rent depends on numbers and on text, partly on combinations; two columns have missing values, and there is noise, so no model can
    reach an R2 of 1.

    >>> flats(3, seed=0).columns.tolist()
    ['area', 'rooms', 'floor', 'lift', 'built', 'centre_km', 'district', 'heating', 'rent']
    """
    random = np.random.default_rng(seed)
    area = random.gamma(8, 9, n_rows).clip(18, 240).round(1)
    rooms = (area / 28 + random.normal(0, 0.6, n_rows)).round().clip(1, 8)
    floor = random.integers(0, 12, n_rows)
    lift = random.random(n_rows) < floor / 12
    built = random.choice([1905, 1930, 1955, 1972, 1990, 2008, 2020], n_rows) + random.integers(-8, 5, n_rows)
    centre_km = random.gamma(2, 2.2, n_rows).round(2)
    district = random.choice(["Harbour", "Hill", "Mill", "Old Town", "Park", "Station"], n_rows)
    heating = random.choice(["district heat", "gas", "heat pump", "oil"], n_rows, p=[0.3, 0.4, 0.2, 0.1])
    per_metre = 9 + 7 * np.exp(-centre_km / 3) + 2.5 * (built > 2000) + 1.5 * (built < 1935)
    per_metre += pd.Series(district).map({"Harbour": 2, "Hill": 1, "Mill": -1, "Old Town": 3, "Park": 2.5, "Station": -2}).to_numpy()
    per_metre -= 1.2 * (heating == "oil") + 0.25 * floor * ~lift
    rent = (per_metre * area * (1 + random.normal(0, 0.07, n_rows)) + 60 * rooms).round(2)
    known = np.where(random.random(n_rows) < 0.05, np.nan, built)
    columns = {"area": area, "rooms": rooms, "floor": floor, "lift": lift, "built": known, "centre_km": centre_km, "district": district}
    return pd.DataFrame({**columns, "heating": pd.Series(heating).where(random.random(n_rows) >= 0.1), _DEMO_TARGET: rent})
