"""Commands and options. The work is done in other modules, which are imported only when a command runs."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Callable
from typing import Any

import click

from dtrees import __version__
from dtrees.cli.errors import OneLineGroup

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 120, "show_default": True}

_FIT_EPILOG = """\b
Examples:
  dtrees fit housing.csv --target price
  dtrees fit 'logs/*.parquet' --target clicked --model forest -p n_estimators=300 --output clicks.dtrees
  dtrees fit train.csv --test test.csv --target income --drop id -p max_depth=8 -p learning_rate=0.05
  dtrees fit s3://bucket/table/ --target y --scheduler tcp://10.0.0.5:8786
  dtrees fit searches.csv --model ranking --target relevance --qid query
  dtrees fit patients.csv --model survival --target days --event died
  dtrees fit payments.csv --model isolation --drop id
"""

_TUNE_EPILOG = """\b
Examples:
  dtrees tune housing.csv --target price --trials 30 --output price.dtrees
  dtrees tune train.csv --test test.csv --target income --scoring auc --storage sqlite:///study.db --study income
"""

_PREDICT_EPILOG = """\b
Examples:
  dtrees predict model.dtrees new.csv --output predictions.csv
  dtrees predict clicks.dtrees 'new/*.parquet' --output predictions.parquet --proba --keep id
  dtrees predict prices.dtrees new.csv --output predictions.csv --coverage 0.9
"""


def _options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Combine several options into one decorator, in the order of the help text."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def _number(name: str, least: int, meaning: str, **more: Any) -> Callable[[Any], Any]:
    """Return an option that takes an integer."""
    return click.option(name, type=click.IntRange(least), metavar="N", help=meaning, **more)


#: Models of one column of numbers or classes, and others.
_MODELS, _OTHERS = ("boosting", "forest", "extra-trees", "tree"), ("ranking", "survival", "isolation")
_MEANT = "Estimator to train: gradient boosting, a random forest, extremely randomized trees, a single tree"

_parameter_options = _options(
    click.option(
        "-p",
        "--set",
        "settings",
        metavar="NAME=VALUE",
        multiple=True,
        help="Set a parameter of the model, as in scikit-learn, for example -p max_depth=8. Repeatable.",
    ),
    click.option(
        "--params",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="Read parameters of the model from a TOML file with lines such as: max_depth = 8. -p overrides the file.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0, 2**32 - 1),
        metavar="N",
        default=0,
        help="Seed of the held-out rows and of the model.  [default: 0]",
        show_default=False,
    ),
)

_QID = click.option("--qid", metavar="COLUMN", help="Query of each row, for rankings.")
_EVENT = click.option("--event", metavar="COLUMN", help="For survival: whether the event was observed (1 or true) or not (0 or false).")

_rows_options = _options(
    click.option(
        "--target",
        metavar="COLUMN",
        help="Column to predict: values, relevances or times. Rows where it is missing are left out. For isolation, labels to score with.",
    ),
    _QID,
    _EVENT,
    click.option(
        "--model",
        type=click.Choice([*_MODELS, *_OTHERS]),
        default="boosting",
        help=f"{_MEANT}, boosting for rankings or for survival, or an isolation forest, which finds outliers.",
    ),
    click.option("--loss", metavar="NAME", help="Loss of boosting, as -p loss=NAME; for survival, cox or aft.  [default: the model's own]"),
    _parameter_options,
    click.option(
        "--task",
        type=click.Choice(["auto", "regression", "classification"]),
        default="auto",
        help="Predict a number or a class; auto decides by the target and prints the reason.",
    ),
    click.option("--features", metavar="COLUMN[,COLUMN...]", multiple=True, help="Use only these columns. Repeatable."),
    click.option("--drop", metavar="COLUMN[,COLUMN...]", multiple=True, help="Leave these columns out. Repeatable."),
    click.option(
        "--test-size",
        type=click.FloatRange(0, 1, max_open=True),
        metavar="SHARE",
        help="Share of the rows to hold out at random and score the model on; 0 trains on all rows.  [default: 0.2]",
    ),
    click.option("--test", metavar="DATA", help="Score the model on this data instead, and train on all rows of DATA."),
)

_cluster_options = _options(
    click.option("--scheduler", metavar="ADDRESS", help="Train on this Dask cluster, for example tcp://10.0.0.5:8786."),
    _number("--n-workers", 1, "Number of worker processes of the embedded cluster.  [default: one worker, in the process of the command]"),
    _number("--threads-per-worker", 1, "Threads of each worker of the embedded cluster.  [default: the cores divided by the workers]"),
)

_csv_options = _options(
    click.option("--separator", metavar="CHAR", help="Character between the values of a CSV file.  [default: a comma; a tab for .tsv]"),
    click.option("--decimal", metavar="CHAR", default=".", help="Decimal separator of the numbers in a CSV file."),
    click.option("--thousands", metavar="CHAR", help="Thousands separator of the numbers in a CSV file, if they have one."),
)


def _with_form(options: dict[str, Any]) -> dict[str, Any]:
    """Combine the options about CSV files into one."""
    from dtrees.cli.tables import CSVForm

    form = CSVForm(*(options.pop(name) for name in ("separator", "decimal", "thousands")))
    return options | {"form": form}


_output_model_option = click.option("-o", "--output", metavar="MODEL", type=click.Path(dir_okay=False), help="Save the model to this file.")

_IMPORTANCES = click.Choice(["gain", "split", "cover"])

_json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print the results as one JSON document to stdout, and everything else to stderr."
)

_model_argument = click.argument("model")

_report_option = click.option(
    "--report",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write an HTML report about the model to this file: scores, curves, importances, trees; on the test rows if there are any.",
)


@click.group(cls=OneLineGroup, context_settings=_CONTEXT)
@click.version_option(__version__, prog_name="dtrees", message="%(prog)s %(version)s")
def main() -> None:
    """Train decision trees, forests and gradient boosting with exact splits, on this machine or on a Dask cluster.

    \b
    Exit codes: 0 success, 1 failure, 2 wrong usage, 129 terminal closed, 130 interrupted, 143 terminated.

    \b
    Try a synthetic table:              dtrees demo
    Train on a CSV or Parquet file:     dtrees fit DATA --target COLUMN
    List the options of a command:      dtrees fit --help
    """  # noqa: D301 (the backspace is for click, which does not wrap the lines after it)
    # A command is a short process with many imports: garbage collections in between and at the end would take a quarter of its time.
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)


@main.command(epilog=_FIT_EPILOG, short_help="Train a model on a table and score it.")
@click.argument("data")
@_rows_options
@click.option(
    "--validation",
    metavar="DATA",
    help="Score this data after each round of boosting. With -p early_stopping_rounds=N, stop if the score has not improved for N rounds.",
)
@click.option(
    "--checkpoint",
    metavar="PATH",
    help="Store finished trees in this file (or s3://...). After an interruption, the same command continues from them.",
)
@click.option("--checkpoint-interval", type=click.FloatRange(0), metavar="SECONDS", help="Time between checkpoints.  [default: 60]")
@click.option(
    "--intervals",
    is_flag=True,
    help="Train a model that also predicts intervals: boosting of quantiles, calibrated on a fifth of the training rows, or a forest.",
)
@_output_model_option
@_report_option
@_json_option
@_csv_options
@_cluster_options
def fit(**options: Any) -> None:
    """Train a model on DATA: a CSV or Parquet file, a folder of them, or a pattern in quotes ('part-*.csv').

    Text columns are categories, and missing values are allowed. Without --scheduler, the command starts a Dask cluster on this machine
    and prints the address of its dashboard.
    """
    from dtrees.cli.fit import fit

    fit(**_with_form(options))


@main.command(epilog=_TUNE_EPILOG, short_help="Search for the best parameters, and train a model with them.")
@click.argument("data")
@_rows_options
@_number("--trials", 1, "Number of trials. The first one has the given parameters.", default=30)
@click.option("--timeout", type=click.FloatRange(0), metavar="SECONDS", help="Start no new trial after this time.")
@_number("--folds", 2, "Number of folds of cross-validation, which scores a trial.", default=5)
@click.option(
    "--scoring", metavar="NAME", help="Score of a trial: a scorer of scikit-learn, or a metric of boosting.  [default: the model's own]"
)
@_number("--jobs", 1, "Number of trials that run at the same time and share the cores.", default=1)
@click.option(
    "--storage", metavar="URL", help="Store the study here, for Optuna's dashboard: for example sqlite:///study.db; needs --study."
)
@click.option("--study", metavar="NAME", help="Name of the study in --storage. An existing study is continued.")
@_output_model_option
@_report_option
@_json_option
@_csv_options
def tune(**options: Any) -> None:
    """Search for parameters by cross-validation on DATA, train a model with the best ones, and score it.

    The search runs in this process and needs Optuna.
    """
    from dtrees.cli.fit import tune

    tune(**_with_form(options))


@main.command(epilog=_PREDICT_EPILOG, short_help="Predict with a saved model.")
@_model_argument
@click.argument("data")
@click.option("-o", "--output", required=True, metavar="FILE", help="File to write: Parquet (.parquet, .pq) or CSV (.csv, .txt, .tsv).")
@click.option("--proba", is_flag=True, help="Also write the probability of each class.")
@click.option(
    "--coverage",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    help="Also write the ends of intervals that cover this share of rows. MODEL must be one of `dtrees fit --intervals`.",
)
@click.option(
    "--times",
    metavar="TIME[,TIME...]",
    multiple=True,
    help="Also write the probability that the event has not occurred by these times. MODEL must be a survival model. Repeatable.",
)
@click.option("--keep", metavar="COLUMN[,COLUMN...]", multiple=True, help="Copy these columns of DATA to the output. Repeatable.")
@_csv_options
@click.option("--scheduler", metavar="ADDRESS", help="Predict on this Dask cluster instead of in this process.")
def predict(**options: Any) -> None:
    """Predict each row of DATA, in order, with MODEL, a file that `dtrees fit --output` wrote."""
    from dtrees.cli.predict import predict

    predict(**_with_form(options))


@main.command(short_help="Score a saved model on a table.")
@_model_argument
@click.argument("data")
@click.option(
    "--target", "targets", multiple=True, metavar="COLUMN",
    help="Column of the true values. Rows where it is missing are left out. For multi-output models, repeat it in the order of the fit. "
    "For an isolation forest, labels, which may be left out.",
)  # fmt: skip
@_QID
@_EVENT
@_report_option
@_json_option
@_csv_options
@click.option("--scheduler", metavar="ADDRESS", help="Score on this Dask cluster, whose workers read DATA, instead of in this process.")
def evaluate(**options: Any) -> None:
    """Score MODEL on DATA, next to a baseline that uses no column.

    Rankings are scored by NDCG, survival models by the concordance index, and isolation forests by the share of outliers or, with labels,
    by ROC AUC.
    """
    from dtrees.cli.predict import evaluate

    evaluate(**_with_form(options))


@main.command(short_help="Describe a saved model.")
@_model_argument
@_number("--tree", 0, "Print this tree as text instead, counted from 0.")
@_number("--depth", 0, "Depth to which the tree is printed.", default=10)
@click.option("--importance", "importance_type", type=_IMPORTANCES, default="gain", help="Kind of importance.")
@_number("--columns", 1, "Number of columns to list, the most important first.", default=20)
@_json_option
def show(**options: Any) -> None:
    """Print the size of MODEL, the changed parameters and the importances of its columns, or one of its trees."""
    from dtrees.cli import saved

    saved.show(**options)


@main.command(short_help="Draw a saved model.")
@click.argument("what", type=click.Choice(["tree", "importance", "metric"]))
@_model_argument
@click.option("-o", "--output", required=True, metavar="FILE", help="File to write, with a name that ends in .png, .svg or .pdf.")
@_number("--tree", 0, "Tree to draw, counted from 0.", default=0)
@_number("--depth", 0, "Depth to which the tree is drawn.", default=4)
@click.option("--importance", "importance_type", type=_IMPORTANCES, help="Kind of importance.  [default: the model's importance_type]")
@click.option("--metric", metavar="NAME", help="Metric of boosting to draw.  [default: the one that chose the best round]")
def plot(**options: Any) -> None:
    """Draw one of the trees of MODEL, the importances of its columns, or the learning curves of boosting. Needs matplotlib."""
    from dtrees.cli import saved

    saved.plot(**options)


@main.command(short_help="Export a saved model for another tool.")
@_model_argument
@click.option(
    "--to",
    "form",
    required=True,
    type=click.Choice(["c", "numpy", "onnx", "xgboost", "treelite", "text", "dot"]),
    help="Format: C; a Python module that loads MODEL and predicts with NumPy alone; a model for ONNX Runtime, XGBoost (JSON) or Treelite; "
    "or one tree as text or for Graphviz (dot).",
)
@click.option("-o", "--output", required=True, metavar="FILE", help="File to write.")
@_number("--tree", 0, "Tree to write as text or dot, counted from 0.", default=0)
def export(**options: Any) -> None:
    """Write MODEL to a file that another tool reads."""
    from dtrees.cli import saved

    saved.export(**options)


@main.command(short_help="Check an installation or a cluster.")
@click.option("--scheduler", metavar="ADDRESS", help="Compare the versions on this Dask cluster with those of this installation.")
@click.option(
    "--model",
    "models",
    multiple=True,
    type=click.Choice(_MODELS),
    help="Compile all kernels of this model, for each criterion, with numbers, categories, sparse tables and constraints. Repeatable.",
)
@click.option("--all", "all_models", is_flag=True, help="Compile the kernels of all models. This takes long.")
@_json_option
def check(**options: Any) -> None:
    """Print versions, compare them with those of a cluster, and compile missing kernels by fitting small models.

    Compilation ends with the command and does not continue in the background. Use it to prepare an image or a benchmark.

    The exit code is 1 if versions differ.
    """
    from dtrees.cli.check import run

    run(**options)


@main.command(short_help="Print a script for completion in a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes the names of commands, options and files in SHELL.

    \b
    For bash:  dtrees completion bash > ~/.dtrees-complete.bash && echo '. ~/.dtrees-complete.bash' >> ~/.bashrc
    For zsh:   dtrees completion zsh > ~/.dtrees-complete.zsh && echo '. ~/.dtrees-complete.zsh' >> ~/.zshrc
    For fish:  dtrees completion fish > ~/.config/fish/completions/dtrees.fish
    """  # noqa: D301
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(main, {}, "dtrees", "_DTREES_COMPLETE").source())


@main.command(short_help="Train a model on a synthetic table.")
@click.option("--model", type=click.Choice(_MODELS), default="boosting", help=f"{_MEANT}.")
@_parameter_options
@_number("--rows", 100, "Number of rows of the synthetic table.", default=20_000)
@click.option("--data", metavar="FILE", type=click.Path(dir_okay=False), help="Write the synthetic table to this new CSV file.")
@_output_model_option
@_report_option
@_json_option
@_cluster_options
def demo(**options: Any) -> None:
    """Generate a synthetic table of flat rents, train on it as `dtrees fit` does, and print the next command."""
    from dtrees.cli.fit import demo

    demo(**options)
