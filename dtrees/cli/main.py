"""Commands and options. What the commands do is in other modules, imported only when they run."""

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
    """Several options as one decorator, in the order of the help text."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


_model_options = _options(
    click.option(
        "--model",
        type=click.Choice(["boosting", "forest", "extra-trees", "tree"]),
        default="boosting",
        help="What to train: gradient boosting, a random forest, extremely randomized trees, or a single tree.",
    ),
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
        help="Take parameters of the model from a TOML file, in lines such as: max_depth = 8. Those of -p go before.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0, 2**32 - 1),
        metavar="N",
        default=0,
        help="Of the draw of the test rows and of all randomness in the model.  [default: 0]",
        show_default=False,
    ),
)

_target_option = click.option(
    "--target", required=True, metavar="COLUMN", help="The column to predict. Rows where it is missing are left out."
)

_rows_options = _options(
    click.option(
        "--task",
        type=click.Choice(["auto", "regression", "classification"]),
        default="auto",
        help="Predict a number or a class; auto tells from the target and says why.",
    ),
    click.option("--features", metavar="COLUMN[,COLUMN...]", multiple=True, help="Use these columns only. Repeatable."),
    click.option("--drop", metavar="COLUMN[,COLUMN...]", multiple=True, help="Leave these columns out. Repeatable."),
    click.option(
        "--test-size",
        type=click.FloatRange(0, 1, max_open=True),
        metavar="SHARE",
        help="Share of the rows, drawn at random, to hold out and score the model on; 0 trains on all.  [default: 0.2]",
    ),
    click.option("--test", metavar="DATA", help="Score the model on this data instead, and train on all of the rest."),
)

_cluster_options = _options(
    click.option("--scheduler", metavar="ADDRESS", help="Train on this Dask cluster, for example tcp://10.0.0.5:8786."),
    click.option(
        "--n-workers",
        type=click.IntRange(1),
        metavar="N",
        help="Worker processes of the embedded cluster.  [default: one worker, in the process of the command]",
    ),
    click.option(
        "--threads-per-worker",
        type=click.IntRange(1),
        metavar="N",
        help="Threads of each worker of the embedded cluster.  [default: the cores, shared out]",
    ),
)

_csv_options = _options(
    click.option("--separator", metavar="CHAR", help="What stands between the values of a CSV file.  [default: a comma; a tab for .tsv]"),
    click.option("--decimal", metavar="CHAR", default=".", help="What stands before the fraction of a number in a CSV file."),
    click.option("--thousands", metavar="CHAR", help="What groups the digits of a number in a CSV file, if anything."),
)


def _with_form(options: dict[str, Any]) -> dict[str, Any]:
    """Put the options about CSV files into one."""
    from dtrees.cli.tables import CSVForm

    form = CSVForm(*(options.pop(name) for name in ("separator", "decimal", "thousands")))
    return options | {"form": form}


_output_model_option = click.option("-o", "--output", metavar="MODEL", type=click.Path(dir_okay=False), help="Save the model to this file.")

_IMPORTANCES = click.Choice(["gain", "split", "cover"])

_json_option = click.option("--json", "as_json", is_flag=True, help="Print the results as JSON on stdout, everything else on stderr.")

_model_argument = click.argument("model")

_report_option = click.option(
    "--report",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write a page about the model to this file (HTML): scores, curves, importances, trees, on the test rows if there are any.",
)


@click.group(cls=OneLineGroup, context_settings=_CONTEXT)
@click.version_option(__version__, prog_name="dtrees", message="%(prog)s %(version)s")
def main() -> None:
    """Train decision trees, forests and gradient boosting with exact splits, here or on a Dask cluster.

    \b
    Exit codes: 0 done, 1 failed, 2 given wrongly, 130 interrupted, 143 terminated, 129 the terminal was closed.

    \b
    Start with a synthetic table:       dtrees demo
    or with a CSV or Parquet file:      dtrees fit DATA --target COLUMN
    and see what else there is with:    dtrees fit --help
    """  # noqa: D301 (the backspace is for click, which does not wrap the lines after it)
    # A command is a short process of many imports: to look for garbage among them, in between and at the end, would take a quarter of its
    # time.
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)


@main.command(epilog=_FIT_EPILOG, short_help="Train a model on a table and score it.")
@click.argument("data")
@_target_option
@_model_options
@_rows_options
@click.option(
    "--validation",
    metavar="DATA",
    help="Score this data after each round of boosting. With -p early_stopping_rounds=N, stop when that has not improved for N rounds.",
)
@click.option(
    "--checkpoint",
    metavar="PATH",
    help="Keep finished trees in this file (or s3://...), and go on from those that an interrupted run of the same command left there.",
)
@click.option("--checkpoint-interval", type=click.FloatRange(0), metavar="SECONDS", help="From one checkpoint to the next.  [default: 60]")
@click.option(
    "--intervals",
    is_flag=True,
    help="Have the model predict intervals, too: of quantiles by boosting, which a fifth of the training rows calibrate, or by a forest.",
)
@_output_model_option
@_report_option
@_json_option
@_csv_options
@_cluster_options
def fit(**options: Any) -> None:
    """Train a model on DATA: a CSV or Parquet file, a folder of them, or a pattern in quotes ('part-*.csv').

    Text columns are used as categories and missing values are fine. Without --scheduler a Dask cluster is started on this machine for
    the time of the run; the link printed first shows it at work.
    """
    from dtrees.cli.fit import fit

    fit(**_with_form(options))


@main.command(epilog=_TUNE_EPILOG, short_help="Search for the best parameters, and train with them.")
@click.argument("data")
@_target_option
@_model_options
@_rows_options
@click.option("--trials", type=click.IntRange(1), metavar="N", default=30, help="Sets of parameters to try, the given ones first.")
@click.option("--timeout", type=click.FloatRange(0), metavar="SECONDS", help="Begin no trial after so long.")
@click.option("--folds", type=click.IntRange(2), metavar="N", default=5, help="Of cross-validation, by which a trial is judged.")
@click.option("--scoring", metavar="NAME", help="What to judge by: a scorer of scikit-learn, or a metric.  [default: the model's own]")
@click.option("--jobs", type=click.IntRange(1), metavar="N", default=1, help="Trials that run side by side, and share the cores.")
@click.option("--storage", metavar="URL", help="Keep the study here, such as sqlite:///study.db, for Optuna's dashboard; needs --study.")
@click.option("--study", metavar="NAME", help="Of the study in --storage; one that is there is gone on with.")
@_output_model_option
@_report_option
@_json_option
@_csv_options
def tune(**options: Any) -> None:
    """Search for the parameters of a model of DATA that cross-validation finds best, train it with them, and score it.

    Runs in this process. Wants Optuna.
    """
    from dtrees.cli.tune import tune

    tune(**_with_form(options))


@main.command(epilog=_PREDICT_EPILOG, short_help="Predict with a saved model.")
@_model_argument
@click.argument("data")
@click.option("-o", "--output", required=True, metavar="FILE", help="Where to write: Parquet (.parquet, .pq) or CSV (.csv, .txt, .tsv).")
@click.option("--proba", is_flag=True, help="Write the probability of each class too.")
@click.option(
    "--coverage",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    help="Write the ends of intervals that cover this share of rows too, by a model of `dtrees fit --intervals`.",
)
@click.option("--keep", metavar="COLUMN[,COLUMN...]", multiple=True, help="Copy these columns of DATA to the output. Repeatable.")
@_csv_options
@click.option("--scheduler", metavar="ADDRESS", help="Predict on this Dask cluster; otherwise in this process.")
def predict(**options: Any) -> None:
    """Predict with MODEL, a file that `dtrees fit --output` wrote, for each row of DATA, in order."""
    from dtrees.cli.predict import predict

    predict(**_with_form(options))


@main.command(short_help="Score a saved model on a table.")
@_model_argument
@click.argument("data")
@click.option(
    "--target", "targets", required=True, multiple=True, metavar="COLUMN",
    help="The column with the right answers; rows where it is missing are left out. Repeatable: once for each target, in their order.",
)  # fmt: skip
@_report_option
@_json_option
@_csv_options
@click.option("--scheduler", metavar="ADDRESS", help="Score on this Dask cluster, whose workers read DATA; otherwise in this process.")
def evaluate(**options: Any) -> None:
    """Score MODEL on DATA, beside a prediction that looks at no column."""
    from dtrees.cli.predict import evaluate

    evaluate(**_with_form(options))


@main.command(short_help="Say what a saved model is.")
@_model_argument
@click.option("--tree", type=click.IntRange(0), metavar="N", help="Print this tree as text instead; they are counted from 0.")
@click.option("--depth", type=click.IntRange(0), metavar="N", default=10, help="How deep the tree is printed.")
@click.option("--importance", "importance_type", type=_IMPORTANCES, default="gain", help="What importances count.")
@click.option("--columns", type=click.IntRange(1), metavar="N", default=20, help="How many columns are listed, the most important first.")
@_json_option
def show(**options: Any) -> None:
    """Print what MODEL is: its size, the parameters that were changed, how much columns matter; or one of its trees."""
    from dtrees.cli import saved

    saved.show(**options)


@main.command(short_help="Draw a saved model.")
@click.argument("what", type=click.Choice(["tree", "importance", "metric"]))
@_model_argument
@click.option("-o", "--output", required=True, metavar="FILE", help="Where to write: a name ending in .png, .svg or .pdf.")
@click.option("--tree", type=click.IntRange(0), metavar="N", default=0, help="Which tree, counted from 0.")
@click.option("--depth", type=click.IntRange(0), metavar="N", default=4, help="How deep the tree is drawn.")
@click.option("--importance", "importance_type", type=_IMPORTANCES, help="What importances count.  [default: as the model was fitted with]")
@click.option("--metric", metavar="NAME", help="Which metric of boosting.  [default: what chose the best round]")
def plot(**options: Any) -> None:
    """Draw one of the trees of MODEL, how much columns matter, or how boosting got better round by round. Wants matplotlib."""
    from dtrees.cli import saved

    saved.plot(**options)


@main.command(short_help="Write a saved model as a file of another tool.")
@_model_argument
@click.option(
    "--to",
    "form",
    required=True,
    type=click.Choice(["c", "numpy", "onnx", "xgboost", "treelite", "text", "dot"]),
    help="What to write: a model as C, or for ONNX Runtime, XGBoost (JSON) or Treelite, one tree as text or for Graphviz, or a module that "
    "loads MODEL and predicts with NumPy alone.",
)
@click.option("-o", "--output", required=True, metavar="FILE", help="Where to write.")
@click.option("--tree", type=click.IntRange(0), metavar="N", default=0, help="Which tree, counted from 0, for text and dot.")
def export(**options: Any) -> None:
    """Write MODEL as a file that other tools read."""
    from dtrees.cli import saved

    saved.export(**options)


@main.command(short_help="See whether an installation or a cluster is fit for work.")
@click.option("--scheduler", metavar="ADDRESS", help="Compare the versions on this Dask cluster with those here.")
@click.option(
    "--model",
    "models",
    multiple=True,
    type=click.Choice(["boosting", "forest", "extra-trees", "tree"]),
    help="Compile all kernels of this model: each criterion, for numbers, categories, sparse tables and constraints. Repeatable.",
)
@click.option("--all", "all_models", is_flag=True, help="Compile the kernels of all models, which takes long.")
@_json_option
def check(**options: Any) -> None:
    """Print versions, compare those of a cluster, and fit something small, which compiles kernels that are not compiled yet.

    When the command ends, all of them are compiled, for an image or a benchmark say: nothing goes on in the background.

    The exit code is 1 if versions differ.
    """
    from dtrees.cli.check import run

    run(**options)


@main.command(short_help="Print what completes commands in a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that has SHELL complete the names of commands, options and files.

    \b
    For bash:  dtrees completion bash > ~/.dtrees-complete.bash && echo '. ~/.dtrees-complete.bash' >> ~/.bashrc
    For zsh:   dtrees completion zsh > ~/.dtrees-complete.zsh && echo '. ~/.dtrees-complete.zsh' >> ~/.zshrc
    For fish:  dtrees completion fish > ~/.config/fish/completions/dtrees.fish
    """  # noqa: D301
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(main, {}, "dtrees", "_DTREES_COMPLETE").source())


@main.command(short_help="Try it on a synthetic table.")
@_model_options
@click.option("--rows", type=click.IntRange(100), metavar="N", default=20_000, help="Rows to make up.")
@click.option("--data", metavar="FILE", type=click.Path(dir_okay=False), help="Keep the synthetic table in this CSV file.")
@_output_model_option
@_report_option
@_json_option
@_cluster_options
def demo(**options: Any) -> None:
    """Make up a table of flat rents, train on it as `dtrees fit` does, and show how to go on."""
    from dtrees.cli.fit import demo

    demo(**options)
