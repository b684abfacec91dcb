"""All uses of scikit-learn's private parts.

Each is necessary because scikit-learn has no public equivalent. ``pyproject.toml`` bounds the versions; a version without one of these
parts fails at import, with an error that names it.
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
    # Parameters are checked by scikit-learn's own rules, with its messages.
    from sklearn.base import _fit_context
    from sklearn.utils import _safe_indexing
    from sklearn.utils._param_validation import HasMethods as HasMethods
    from sklearn.utils._param_validation import Hidden as Hidden
    from sklearn.utils._param_validation import Interval as Interval
    from sklearn.utils._param_validation import Options as Options
    from sklearn.utils._param_validation import RealNotInt as RealNotInt
    from sklearn.utils._param_validation import StrOptions as StrOptions
    from sklearn.utils._param_validation import validate_parameter_constraints
    from sklearn.utils.validation import _check_monotonic_cst
except ImportError as error:
    raise ImportError(
        f"dtrees needs scikit-learn 1.7 or later, but scikit-learn {sklearn.__version__} is installed, and it lacks a part that "
        f"dtrees uses ({error}); install a version that dtrees was tested with, 1.7 to 1.9"
    ) from error

if TYPE_CHECKING:  # scikit-learn has no types, and with a base of unknown type, type checkers accept any parameter

    class BaseEstimator:
        """Base class of estimators."""

        fit: Any
        get_params: Any
        set_params: Any

        def __getattr__(self, name: str) -> Any: ...
        def __sklearn_tags__(self) -> Any: ...
        def __getstate__(self) -> dict[str, Any]: ...
        def __setstate__(self, state: Any) -> None: ...

    class ClassifierMixin:
        """Mixin of classifiers."""

    class RegressorMixin:
        """Mixin of regressors."""

    class OutlierMixin:
        """Mixin of outlier detectors."""

    class CallbackSupportMixin:
        """Mixin of estimators with scikit-learn's callbacks."""

        def _init_callback_context(self, task_name: str = "fit", task_id: int = 0, max_subtasks: int | None = 0) -> Any: ...

    def with_callbacks(method: Callable[[Any], None]) -> Callable[[Any], None]:
        """Decorate a method, at whose end scikit-learn's callbacks end."""
        ...

else:
    from sklearn.base import BaseEstimator as BaseEstimator
    from sklearn.base import ClassifierMixin as ClassifierMixin
    from sklearn.base import OutlierMixin as OutlierMixin
    from sklearn.base import RegressorMixin as RegressorMixin

    try:
        from sklearn.callback import CallbackSupportMixin as CallbackSupportMixin
        from sklearn.callback import with_callbacks as with_callbacks
    except ImportError:  # before 1.9

        class CallbackSupportMixin:
            """An empty substitute, as this version has no callbacks."""


#: Rows of arrays and frames of every kind, as scikit-learn selects them for its validation sets.
safe_indexing = _safe_indexing
#: The checked signs of ``monotonic_cst`` for each column of an estimator with known columns.
check_monotonic_cst = _check_monotonic_cst
#: Major and minor version.
SKLEARN_VERSION = tuple(map(int, sklearn.__version__.split(".")[:2]))


_Method = TypeVar("_Method", bound=Callable[..., Any])


def checked_fit(fit: _Method) -> _Method:
    """Decorate ``fit`` with scikit-learn's check of parameters; type checkers see the method unchanged.

    Objects called by a fit (an estimator as ``init``, metrics, scorers) belong to the user, and check their parameters as well.
    """
    return _fit_context(prefer_skip_nested_validation=False)(fit)


def with_known_names(X: Any, names: list[Any]) -> Any:
    """Return a frame whose column names scikit-learn recognizes; before version 1.9, it recognizes only those of pandas."""
    if not names or hasattr(X, "iloc") or SKLEARN_VERSION >= (1, 9):
        return X
    import pandas as pd

    return pd.DataFrame(columns=names)


_all_names: dict[type, tuple[str, ...]] = {}
_all_defaults: dict[type, dict[str, Any]] = {}


def parameter_names(kind: type) -> tuple[str, ...]:
    """Return the names of an estimator's parameters, cached, as asking scikit-learn takes as long as growing a small tree."""
    if kind not in _all_names:
        names: Any = sklearn.base.BaseEstimator._get_param_names
        _all_names[kind] = tuple(names.__func__(kind))
    return _all_names[kind]


def _good_defaults(kind: type) -> dict[str, Any]:
    """Return the valid defaults of an estimator class, which need no check; a user's subclass may have others."""
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
    """Raise ValueError for invalid parameters of an estimator, as its fit would; defaults are not checked."""
    kind = type(estimator)
    defaults, values = _good_defaults(kind), {name: getattr(estimator, name) for name in parameter_names(kind)}
    given = {name: value for name, value in values.items() if name not in defaults or value is not defaults[name]}
    validate_parameter_constraints(estimator._parameter_constraints, given, type(estimator).__name__)


class CheckedParameters:
    """Mixin: scikit-learn's checks of an estimator's parameters, in a tenth of the time, and the link to its documentation.

    Names are cached for each class, and only values that differ from defaults are checked. The display of an estimator in a notebook links
    to its page at the address in ``DTREES_DOCS``.
    """

    _doc_link_module = "dtrees"

    @property
    def _doc_link_template(self) -> str:
        address = os.environ.get("DTREES_DOCS")
        return f"{address.rstrip('/')}/api/dtrees.{{estimator_name}}.html" if address else ""

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return list(parameter_names(cls))

    def _validate_params(self) -> None:
        check_parameters(self)


class NamesAtTheTime(StrOptions):
    """The constraint of a parameter with named options that are looked up at each check, as not all are known at import.

    Parameters
    ----------
    names : callable
        Returns the set of names.
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
    """A metric of scikit-learn with its properties.

    Attributes
    ----------
    function : callable
        ``function(y_true, y_pred)``, perhaps with ``sample_weight``.
    name : str
    greater_is_better : bool or None
        Whether scorers maximise ``sign`` times the function; None if unknown.
    takes_labels : bool
        Whether it compares labels with labels, not with probabilities.
    sign : int
        The factor of the function in a scorer.
    takes_raw : bool
        Whether a scorer compares labels with the result of ``decision_function``, if a classifier has this method.
    """

    function: Callable[..., Any]
    name: str
    greater_is_better: bool | None
    takes_labels: bool
    sign: int = 1
    takes_raw: bool = False


def sklearn_metric(metric: Any) -> SklearnMetric | None:
    """Return the properties of a scorer or of a function of :mod:`sklearn.metrics`; None for any other callable.

    Examples
    --------
    >>> from sklearn.metrics import get_scorer, mean_absolute_error, roc_auc_score
    >>> sklearn_metric(roc_auc_score).greater_is_better, sklearn_metric(mean_absolute_error).greater_is_better
    (True, False)
    >>> sklearn_metric(get_scorer("neg_log_loss")).name
    'neg_log_loss'
    """
    if hasattr(metric, "_score_func") and hasattr(metric, "_sign"):  # a scorer, whose function is not public
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
    """Return the scorer with a name, None if there is none, or if it is for the other task.

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
    """Return scikit-learn's named scorers, by function."""
    from sklearn.metrics import get_scorer, get_scorer_names

    scorers = map(get_scorer, get_scorer_names())
    return {scorer._score_func: scorer for scorer in scorers}


class _AtImport(MetaPathFinder):
    """Registers classes with scikit-learn's classes of the same names when their module is imported, as importing it takes time."""

    def __init__(self) -> None:
        self.waiting: set[type] = set()

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Have a module register the classes after its import, if it has such classes."""
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
def register_with_sklearn(kind: type) -> None:
    """Make functions of scikit-learn that require one of its own classes accept an estimator class.

    These are functions that print a tree or have a faster method for trees: ``export_text``, ``plot_tree``, ``partial_dependence``. The
    class becomes a virtual subclass of scikit-learn's class of the same name (see :meth:`abc.ABCMeta.register`) when that is imported.
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
