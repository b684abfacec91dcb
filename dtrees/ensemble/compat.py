"""Private parts of scikit-learn: the only module of dtrees that uses any.

Each has a reason here, since scikit-learn has no public way to the same. ``pyproject.toml`` bounds the versions, and a version without one
of these parts fails at import, with a message that names it.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any, TypeVar

import sklearn

try:
    # Parameters are checked as scikit-learn checks those of its own estimators: the same rules, and the same messages.
    from sklearn.base import _fit_context
    from sklearn.utils import _safe_indexing
    from sklearn.utils._param_validation import (
        HasMethods,
        Hidden,
        Interval,
        Options,
        RealNotInt,
        StrOptions,
        validate_parameter_constraints,
    )
    from sklearn.utils.validation import _check_monotonic_cst
except ImportError as error:
    raise ImportError(
        f"dtrees needs scikit-learn 1.7 or later, but scikit-learn {sklearn.__version__} is installed, and it lacks a part that "
        f"dtrees uses ({error}); install a version that dtrees was tested with, 1.7 to 1.9"
    ) from error

if TYPE_CHECKING:  # scikit-learn has no types, and where a base is of unknown type, type checkers take any parameter

    class BaseEstimator:
        """What estimators inherit."""

        fit: Any
        get_params: Any
        set_params: Any

        def __getattr__(self, name: str) -> Any: ...
        def __sklearn_tags__(self) -> Any: ...
        def __getstate__(self) -> dict[str, Any]: ...
        def __setstate__(self, state: Any) -> None: ...

    class ClassifierMixin:
        """What makes a classifier."""

    class RegressorMixin:
        """What makes a regressor."""

    class OutlierMixin:
        """What makes a detector of outliers."""

    class CallbackSupportMixin:
        """What takes callbacks of scikit-learn."""

        def _init_callback_context(self, task_name: str = "fit", task_id: int = 0, max_subtasks: int | None = 0) -> Any: ...

    def with_callbacks(method: Callable[[Any], None]) -> Callable[[Any], None]:
        """Have callbacks of scikit-learn end with a method."""
        ...

else:
    from sklearn.base import BaseEstimator, ClassifierMixin, OutlierMixin, RegressorMixin

    try:
        from sklearn.callback import CallbackSupportMixin, with_callbacks
    except ImportError:  # before 1.9

        class CallbackSupportMixin:
            """Nothing: there are no such callbacks."""


#: What is taken from here as it is.
__all__ = [
    "BaseEstimator",
    "CallbackSupportMixin",
    "ClassifierMixin",
    "HasMethods",
    "Hidden",
    "Interval",
    "Options",
    "OutlierMixin",
    "RealNotInt",
    "RegressorMixin",
    "StrOptions",
    "with_callbacks",
]

#: Rows of arrays and of frames of every kind, as scikit-learn takes them for its own validation sets.
safe_indexing = _safe_indexing
#: The signs of ``monotonic_cst``, checked, for each column of an estimator that knows its columns.
check_monotonic_cst = _check_monotonic_cst
#: Major and minor version.
SKLEARN_VERSION = tuple(map(int, sklearn.__version__.split(".")[:2]))


_Method = TypeVar("_Method", bound=Callable[..., Any])


def checked_fit(fit: _Method) -> _Method:
    """Decorate ``fit`` with scikit-learn's check of parameters; type checkers see the method as it was.

    What a fit calls (an estimator as ``init``, metrics, scorers) is the user's, and checks its parameters as well.
    """
    decorated: _Method = _fit_context(prefer_skip_nested_validation=False)(fit)
    return decorated


def with_known_names(X: Any, names: list[Any]) -> Any:
    """Return what scikit-learn sees the names of a frame's columns of; before 1.9, it knows those of pandas' frames only."""
    if not names or hasattr(X, "iloc") or SKLEARN_VERSION >= (1, 9):
        return X
    import pandas as pd

    return pd.DataFrame(columns=names)


class DocumentationLink:
    """Mixin: the picture of an estimator in a notebook links to its page in the documentation, where ``DTREES_DOCS`` names its address."""

    _doc_link_module = "dtrees"

    @property
    def _doc_link_template(self) -> str:
        address = os.environ.get("DTREES_DOCS")
        return f"{address.rstrip('/')}/api/dtrees.{{estimator_name}}.html" if address else ""


_all_names: dict[type, tuple[str, ...]] = {}
_all_defaults: dict[type, dict[str, Any]] = {}


def parameter_names(kind: type) -> tuple[str, ...]:
    """Return the names of an estimator's parameters; to ask scikit-learn takes as long as to grow a small tree."""
    if kind not in _all_names:
        names: Any = sklearn.base.BaseEstimator._get_param_names
        _all_names[kind] = tuple(names.__func__(kind))
    return _all_names[kind]


def _good_defaults(kind: type) -> dict[str, Any]:
    """Return those defaults of a class of estimators that need no check; of a class derived from ours there may be others."""
    if kind not in _all_defaults:
        parameters, good = inspect.signature(kind.__init__).parameters, {}  # type: ignore[misc]
        for name in parameter_names(kind):
            default = parameters[name].default
            with suppress(ValueError):
                validate_parameter_constraints(kind._parameter_constraints, {name: default}, kind.__name__)  # type: ignore[attr-defined]
                good[name] = default
        _all_defaults[kind] = good
    return _all_defaults[kind]


def check_parameters(estimator: Any) -> None:
    """Raise ValueError for parameters of an estimator that are not what they may be, as its fit would; defaults need no check."""
    kind = type(estimator)
    defaults, values = _good_defaults(kind), {name: getattr(estimator, name) for name in parameter_names(kind)}
    given = {name: value for name, value in values.items() if name not in defaults or value is not defaults[name]}
    validate_parameter_constraints(estimator._parameter_constraints, given, type(estimator).__name__)


class CheckedParameters:
    """Mixin: scikit-learn's checks of an estimator's parameters, in a tenth of the time.

    The names are found out once for each class, and only what differs from its default is checked.
    """

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return list(parameter_names(cls))

    def _validate_params(self) -> None:
        check_parameters(self)


class NamesAtTheTime(StrOptions):
    """The constraint of a parameter that is one of some names, which are looked up whenever it is checked: not all are known at import.

    Parameters
    ----------
    names : callable
        Returns the set of the names.
    """

    def __init__(self, names: Callable[[], set[str]]) -> None:
        self._names = names
        self.type, self.hidden = str, False
        self.deprecated: set[str] = set()

    @property
    def options(self) -> set[str]:
        """The names."""
        return self._names()


@dataclass(frozen=True)
class SklearnMetric:
    """A metric of scikit-learn's, and what it says of it.

    Attributes
    ----------
    function : callable
        ``function(y_true, y_pred)``, perhaps with ``sample_weight``.
    name : str
    greater_is_better : bool or None
        Whether scorers maximise ``sign`` times the function; None where scikit-learn does not tell.
    takes_labels : bool
        Whether it compares labels rather than labels with probabilities.
    sign : int
        What a scorer multiplies the function by.
    takes_raw : bool
        Whether a scorer compares labels with what ``decision_function`` returns, where a classifier has that.
    """

    function: Callable[..., Any]
    name: str
    greater_is_better: bool | None
    takes_labels: bool
    sign: int = 1
    takes_raw: bool = False


def sklearn_metric(metric: Any) -> SklearnMetric | None:
    """Return what scikit-learn says of a scorer, or of a function of :mod:`sklearn.metrics`; None for any other callable.

    Examples
    --------
    >>> from sklearn.metrics import get_scorer, mean_absolute_error, roc_auc_score
    >>> sklearn_metric(roc_auc_score).greater_is_better, sklearn_metric(mean_absolute_error).greater_is_better
    (True, False)
    >>> sklearn_metric(get_scorer("neg_log_loss")).name
    'neg_log_loss'
    """
    if hasattr(metric, "_score_func") and hasattr(metric, "_sign"):  # a scorer, which has no public way to its function
        function = metric._score_func
        name = ("neg_" if metric._sign < 0 else "") + getattr(function, "__name__", type(function).__name__)
        methods = [_response(metric)] if isinstance(_response(metric), str) else list(_response(metric))
        takes_labels, takes_raw = methods == ["predict"], methods[0] == "decision_function"
        return SklearnMetric(functools.partial(function, **metric._kwargs), name, True, takes_labels, int(metric._sign), takes_raw)
    function = metric
    while isinstance(function, functools.partial):
        function = function.func
    module, name = getattr(function, "__module__", None) or "", getattr(function, "__name__", "")
    if not module.startswith("sklearn.metrics"):
        return None
    scorer = _scorers().get(function)
    if scorer is not None:
        greater_is_better: bool | None = scorer._sign > 0
    else:  # "functions ending with _score return a value to maximize, those ending with _error, _loss, or _deviance one to minimize"
        greater_is_better = True if name.endswith("_score") else False if name.endswith(("_error", "_loss", "_deviance")) else None
    takes_labels = module.endswith("._classification") and (
        _response(scorer) == "predict" if scorer is not None else "y_pred" in inspect.signature(function).parameters
    )
    return SklearnMetric(metric, name, greater_is_better, takes_labels)


def scorer_named(name: str, classify: bool) -> Any:
    """Return the scorer that scikit-learn knows by a name, None if there is none, or if it is for the other task.

    Examples
    --------
    >>> scorer_named("neg_log_loss", classify=True), scorer_named("neg_log_loss", classify=False)
    (make_scorer(log_loss, greater_is_better=False, response_method='predict_proba'), None)
    """
    from sklearn.metrics import get_scorer, get_scorer_names

    if name not in get_scorer_names():
        return None
    scorer = get_scorer(name)
    return None if scorer._score_func.__module__.endswith("._regression") == classify else scorer


def _response(scorer: Any) -> Any:
    return getattr(scorer, "_response_method", "predict")


@functools.cache
def _scorers() -> dict[Callable[..., Any], Any]:
    """Return the scorers that scikit-learn names, by their functions."""
    from sklearn.metrics import get_scorer, get_scorer_names

    scorers = map(get_scorer, get_scorer_names())
    return {scorer._score_func: scorer for scorer in scorers}


class _AtImport(MetaPathFinder):
    """Registers classes with scikit-learn's of the same names as soon as somebody imports these; to do so takes time."""

    def __init__(self) -> None:
        self.waiting: set[type] = set()

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Have the module register classes once it is there, if it is one that has such."""
        spec = PathFinder.find_spec(name, path) if name in _MODULES_OF_TREES else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_register(module: Any) -> None:
            execute(module)
            for kind in self.waiting:
                _register(kind, module)

        spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


_MODULES_OF_TREES = "sklearn.tree", "sklearn.ensemble"
_at_import = _AtImport()
sys.meta_path.insert(0, _at_import)


@functools.cache
def stand_in_for_sklearns(kind: type) -> None:
    """Have functions of scikit-learn's that ask for one of its own classes take an estimator of a class.

    Those that print a tree, or know a faster way for trees, ask: ``export_text``, ``plot_tree``, ``partial_dependence``. The class becomes
    a virtual subclass of scikit-learn's of the same name (see :meth:`abc.ABCMeta.register`) when somebody imports that.
    """
    _at_import.waiting.add(kind)
    for name in _MODULES_OF_TREES:
        if name in sys.modules:
            _register(kind, sys.modules[name])


def _register(kind: type, module: Any) -> None:
    for own in kind.__mro__:
        theirs = getattr(module, own.__name__, None)
        if theirs is not None and own is not theirs:
            theirs.register(own)
