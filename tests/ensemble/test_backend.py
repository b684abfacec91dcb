import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dtrees.ensemble import in_process
from dtrees.ensemble.evaluation_sets import EvalSet
from dtrees.ensemble.in_process import backend_for
from tests.ensemble.samples import BOOSTING, FORESTS, KINDS, N, X, assert_same_trees, every_kind, make, target

SINGLE = KINDS[:4]


class Blocks:
    """A collection of blocks of rows, like that of a cluster."""

    def __init__(self, *parts):
        self.parts = parts

    def compute(self):
        return np.concatenate([part() if callable(part) else part for part in self.parts])


class BlockBackend:
    """Loads by concatenating blocks; predicts lazily, block by block, with a pickled function."""

    def fit(self, estimator, X, y, sample_weight, options, client=None, placement=None):
        return None

    def load(self, X, y, sample_weight, options):
        return backend_for(np.empty(0)).load(X.compute(), y.compute(), sample_weight, options)

    def load_evaluation(self, table, sets, metrics):
        here = [EvalSet(given.name, *self.gather(given.X, given.y, given.weight)) for given in sets]
        return backend_for(np.empty(0)).load_evaluation(table, here, metrics)

    def fingerprint(self, table):
        return backend_for(np.empty(0)).fingerprint(table)

    def grow_forest(self, *arguments):
        return backend_for(np.empty(0)).grow_forest(*arguments)

    def boost(self, *arguments):
        return backend_for(np.empty(0)).boost(*arguments)

    def target(self, table):
        return table.target

    def header(self, X):
        return X.parts[0]

    def predict(self, X, function, output, beside=None):
        assert beside is None
        function = pickle.loads(pickle.dumps(function))

        def predict(part):
            result = function(part)
            assert result.dtype == output.dtype
            assert result.shape == ((len(part),) if output.width is None else (len(part), output.width))
            return result

        return Blocks(*((lambda part=part: predict(part)) for part in X.parts))

    def gather(self, *collections):
        return [item.compute() if isinstance(item, Blocks) else item for item in collections]


@pytest.fixture
def blocks(monkeypatch):
    monkeypatch.setitem(in_process._BACKENDS, Blocks.__module__.partition(".")[0], (__name__, "BlockBackend"))
    return Blocks(X[:100], X[:0], X[100:])


@every_kind
def test_everything_goes_through_the_backend(kind, blocks, tmp_path):
    y = target(kind)
    parameters = {"bootstrap": True, "oob_score": True, "n_estimators": 30} if kind in FORESTS else {}
    local = make(kind, **parameters).fit(X, y)
    sets = {"eval_set": {"blocks": (blocks, Blocks(y)), "here": (X, y)}} if kind in BOOSTING else {}
    kept = {} if kind in SINGLE else {"checkpoint": tmp_path / "checkpoint"}
    model = make(kind, **parameters).fit(blocks, Blocks(y[:150], y[150:]), **sets, **kept)
    assert_same_trees(model, local)
    if sets:
        scores = [next(iter(metrics.values())) for metrics in model.evals_result_.values()]
        assert_array_equal(*scores)
    if kept:
        assert_same_trees(make(kind, **parameters).fit(X, y, **kept), local)  # the same table, so the checkpoint belongs to this fit
    methods = ["predict", "predict_proba", "predict_log_proba", "decision_function"]
    for method in [method for method in methods if hasattr(model, method)]:
        lazy = getattr(model, method)(blocks)
        assert isinstance(lazy, Blocks)
        assert_array_equal(lazy.compute(), getattr(model, method)(X))
        if hasattr(model, f"staged_{method}"):
            for lazy, stage in zip(getattr(model, f"staged_{method}")(blocks), getattr(model, f"staged_{method}")(X), strict=True):
                assert_array_equal(lazy.compute(), stage)
    assert_array_equal(model.apply(blocks).compute().reshape(N, -1), model.apply(X).reshape(N, -1))
    assert model.score(blocks, Blocks(y)) == local.score(X, y)
    if hasattr(model, "decision_path"):
        with pytest.raises(TypeError, match="decision_path wants an array or a frame in memory, not Blocks"):
            model.decision_path(blocks)
    with pytest.raises(ValueError, match="X has 2 features"):
        model.predict(Blocks(X[:, :2]))
