"""Checkpoints: a fit that is interrupted anywhere continues to the model of an uninterrupted one; other checkpoints are refused."""

import errno
import logging
import os
import pickle

import fsspec
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

import dtrees
from dtrees.ensemble import checkpoint as checkpoints
from dtrees.split.table.columns import presort
from tests.changed_model_files import rewrite
from tests.ensemble.samples import BOOSTING, FORESTS, SIGNAL, WEIGHT, X, assert_same_trees, every_ensemble, is_classifier, make, target
from tests.examples import examples


class Killed(BaseException):
    """Ends a run here; nothing can catch it by mistake."""


def kill_after(n):
    def callback(progress):
        if progress.done == n:
            raise Killed

    return callback


def settings_of(kind):
    if kind in BOOSTING:
        return {"subsample": 0.7, "n_iter_no_change": 50, "eval_metric": "error" if is_classifier(kind) else "r2"}
    return {"bootstrap": True, "oob_score": True}


def arguments(kind):
    y = target(kind)
    sets = {"eval_set": [(X[200:], y[200:])]} if kind in BOOSTING else {}
    return (X, y, WEIGHT), sets


def assert_same(one, other):
    """Check that two fitted models are equal in every byte of a model file."""
    (state, arrays), (other_state, other_arrays) = one._to_state(), other._to_state()
    assert state == other_state
    assert list(arrays) == list(other_arrays)
    assert all(arrays[name].tobytes() == other_arrays[name].tobytes() for name in arrays)
    for name in ("oob_prediction_", "oob_decision_function_"):
        if hasattr(one, name):
            assert getattr(one, name).tobytes() == getattr(other, name).tobytes()


pytestmark = pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")


@pytest.mark.parametrize("n_done", [1, 4, 7])
@every_ensemble
def test_going_on_is_the_unbroken_run(kind, n_done, tmp_path):
    data, sets = arguments(kind)
    path = tmp_path / "checkpoint"
    whole = make(kind, **settings_of(kind)).fit(*data, **sets)
    with pytest.raises(Killed):
        make(kind, **settings_of(kind)).fit(*data, **sets, checkpoint=path, checkpoint_interval=0, callbacks=[kill_after(n_done)])
    heard = []
    model = make(kind, n_jobs=2, **settings_of(kind))
    model.fit(*data, **sets, checkpoint=path, checkpoint_interval=0, callbacks=[heard.append])
    assert_same(model.set_params(n_jobs=None), whole)
    assert [progress.done for progress in heard] == list(range(1, 9))
    again = make(kind, **settings_of(kind)).fit(*data, **sets, checkpoint=path)  # finished already
    assert_same(again, whole)


@every_ensemble
def test_no_new_tree_is_grown_twice(kind, tmp_path, monkeypatch):
    """The second run grows only the trees that the first did not."""
    from dtrees.engine.shard.tree_state import TreeState

    grown = []
    monkeypatch.setattr(TreeState, "open", lambda self, tree, *a, old=TreeState.open, **k: grown.append(tree) or old(self, tree, *a, **k))
    data, sets = arguments(kind)
    with pytest.raises(Killed):
        make(kind).fit(*data, **sets, checkpoint=tmp_path / "c", checkpoint_interval=0, callbacks=[kill_after(5)])
    first, grown[:] = list(grown), []
    make(kind).fit(*data, **sets, checkpoint=tmp_path / "c", checkpoint_interval=0)
    # Callbacks are called for a forest's tree before its batch is saved, for a round after it.
    n_done = 4 if kind in FORESTS else 5
    per_round = 3 if kind is dtrees.GradientBoostingClassifier else 1
    assert sorted(first) == list(range(5 * per_round))
    assert sorted(grown) == list(range(n_done * per_round, 8 * per_round))


@pytest.mark.parametrize("kind", [dtrees.GradientBoostingRegressor, dtrees.RandomForestRegressor], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("moment", ["temporary", "between", "none"])
@pytest.mark.parametrize("system", ["local", "memory"])
def test_killed_while_a_checkpoint_is_written(kind, moment, system, tmp_path, monkeypatch):
    """Whenever a run dies, there is a complete checkpoint, perhaps the previous one."""
    path = str(tmp_path / "checkpoint") if system == "local" else f"memory://{tmp_path.name}/{kind.__name__}/{moment}"
    put, n_written = checkpoints._put, []

    def dying_put(path, content):
        n_written.append(path)
        if len(n_written) < 5:
            put(path, content)
            return
        if moment == "temporary":
            with fsspec.open(f"{path}.0a1b.tmp", "wb") as file:
                file.write(content[:100])
        elif moment == "between":
            fs, place = fsspec.core.url_to_fs(path)
            fs.mv(place, f"{place}.previous")
        raise Killed

    monkeypatch.setattr(checkpoints, "_put", dying_put)
    with pytest.raises(Killed):
        make(kind).fit(X, SIGNAL, checkpoint=path, checkpoint_interval=0)
    monkeypatch.undo()
    model = make(kind).fit(X, SIGNAL, checkpoint=path, checkpoint_interval=0)
    assert_same(model, make(kind).fit(X, SIGNAL))


def broken_fit(path, n_done=5, kind=dtrees.GradientBoostingRegressor, **parameters):
    with pytest.raises(Killed):
        make(kind, **parameters).fit(X, SIGNAL, checkpoint=path, checkpoint_interval=0, callbacks=[kill_after(n_done)])


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "other"])
def test_a_damaged_checkpoint_gives_way_to_the_previous_one(damage, tmp_path, caplog):
    path = tmp_path / "checkpoint"
    broken_fit(path)
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 4
    damaged = {"truncated": content[:-7], "flipped": bytes(flipped), "empty": b"", "other": b"a text\n" * 30}[damage]
    path.write_bytes(damaged)
    heard = []
    with (
        caplog.at_level(logging.INFO, "dtrees"),
        pytest.warns(UserWarning, match="damaged.*looking for the previous one"),
    ):
        model = make(dtrees.GradientBoostingRegressor).fit(X, SIGNAL, checkpoint=path, checkpoint_interval=9, callbacks=[heard.append])
    assert_same(model, make(dtrees.GradientBoostingRegressor).fit(X, SIGNAL))
    assert any("with 4 rounds" in record.getMessage() for record in caplog.records)


@pytest.mark.filterwarnings("ignore:checkpoint")
def test_a_damaged_checkpoint_without_a_previous_one_is_refused(tmp_path):
    path = tmp_path / "checkpoint"
    path.write_bytes(b"my thesis")
    with pytest.raises(ValueError, match=r"checkpoint: .* is damaged or no checkpoint.*and there is no previous one"):
        make(dtrees.GradientBoostingRegressor).fit(X, SIGNAL, checkpoint=path)
    assert path.read_bytes() == b"my thesis"
    dtrees.save(make(dtrees.GradientBoostingRegressor).fit(X, SIGNAL), path)
    with pytest.raises(ValueError, match="no checkpoint"):
        make(dtrees.GradientBoostingRegressor).fit(X, SIGNAL, checkpoint=path)


@examples(25)
@given(st.data())
def test_no_damage_is_overlooked(data):
    content = checkpoints.pack("dtrees_checkpoint", {"seed": 3}, {"x": np.arange(5.0)})
    broken = bytearray(content)
    place = data.draw(st.integers(0, len(content) - 1))
    broken[place] ^= data.draw(st.integers(1, 255))
    try:
        document, arrays = checkpoints.unpack("dtrees_checkpoint", bytes(broken))
    except ValueError:
        return
    assert document["seed"] == 3
    assert arrays["x"].tolist() == [0, 1, 2, 3, 4]


OTHER_TARGET = SIGNAL.copy()
OTHER_TARGET[17] += 1e-9
OTHER_X = X.copy()
OTHER_X[40, 2] = 0.25
SWAPPED = X[:, [1, 0, 2, 3, 4]]


@pytest.mark.parametrize(
    ("parameters", "data", "message"),
    [
        ({"learning_rate": 0.3}, (X, SIGNAL), "learning_rate was 0.15, is 0.3"),
        ({"max_depth": 3}, (X, SIGNAL), "max_depth was 6, is 3"),
        ({"random_state": 1}, (X, SIGNAL), "seed was"),
        ({"monotonic_cst": [0, 1, 0, 0, 0]}, (X, SIGNAL), "monotonic was"),
        ({"interaction_cst": "pairwise"}, (X, SIGNAL), "most_columns was"),
        ({"n_iter_no_change": 3}, (X, SIGNAL), "rows held out was 0.0, is 0.1"),
        ({}, (OTHER_X, SIGNAL), "data was"),
        ({}, (SWAPPED, SIGNAL), "data was"),
        ({}, (X, OTHER_TARGET), "data was"),
        ({}, (X, SIGNAL, WEIGHT), "data was"),
        ({}, (X[::-1], SIGNAL[::-1]), "data was"),
    ],
    ids=["learning rate", "depth", "seed", "order of columns", "interactions", "held out", "cell", "columns", "target", "weight", "order"],
)
def test_another_fit_is_refused(parameters, data, message, tmp_path):
    path = tmp_path / "checkpoint"
    broken_fit(path)
    with pytest.raises(ValueError, match=f"is of another fit .*{message}"):
        make(dtrees.GradientBoostingRegressor, **parameters).fit(*data, checkpoint=path)
    with pytest.raises(ValueError, match="estimator was GradientBoostingRegressor, is RandomForestRegressor"):
        make(dtrees.RandomForestRegressor).fit(X, SIGNAL, checkpoint=path)
    model = make(dtrees.GradientBoostingRegressor).fit(X, SIGNAL, checkpoint=path)  # nothing was lost
    assert_same(model, make(dtrees.GradientBoostingRegressor).fit(X, SIGNAL))


@pytest.mark.parametrize("kind", [dtrees.GradientBoostingRegressor, dtrees.RandomForestRegressor], ids=lambda kind: kind.__name__)
def test_more_or_fewer_trees(kind, tmp_path):
    """The number of trees is not part of a checkpoint's identity."""
    path = tmp_path / "checkpoint"
    settings = {"oob_score": True} if kind is dtrees.RandomForestRegressor else {}
    broken_fit(path, kind=kind, **settings)
    for n_estimators in (12, 3):
        model = make(kind, n_estimators=n_estimators, **settings).fit(X, SIGNAL, checkpoint=path)
        assert_same(model, make(kind, n_estimators=n_estimators, **settings).fit(X, SIGNAL))


@pytest.mark.parametrize("kind", BOOSTING, ids=lambda kind: kind.__name__)
def test_early_stopping_is_decided_alike(kind, tmp_path):
    """Also by rounds after the checkpoint, and by a callback with a state."""
    y = target(kind)
    train, sets = (X[:180], y[:180]), [(X[180:], y[180:])]

    def fit(early=True, **more):
        stops = {"early_stopping_rounds": 3} if early else {"n_iter_no_change": 3, "tol": 0.0}
        return make(kind, n_estimators=80, learning_rate=0.6, **stops).fit(*train, eval_set=sets, **more)

    for early in (True, False):
        whole = fit(early)
        for n_done in (2, whole.n_estimators_):
            path = tmp_path / f"{early}-{n_done}"
            with pytest.raises(Killed):
                fit(early, checkpoint=path, checkpoint_interval=0, callbacks=[kill_after(n_done)])
            assert_same(fit(early, checkpoint=path), whole)

    def patient():
        seen = []

        def stop(progress):
            seen.append(progress.train_score)
            return sum(score < seen[0] * 0.7 for score in seen) == 3

        return stop

    unbroken = make(kind, n_estimators=30).fit(*train, callbacks=[patient()])
    with pytest.raises(Killed):
        make(kind, n_estimators=30).fit(*train, checkpoint=tmp_path / "c", checkpoint_interval=0, callbacks=[kill_after(2)])
    assert_same(make(kind, n_estimators=30).fit(*train, checkpoint=tmp_path / "c", callbacks=[patient()]), unbroken)
    assert 2 < unbroken.n_estimators_ < 30


@every_ensemble
def test_going_on_in_a_warm_start(kind, tmp_path):
    y, path = target(kind), tmp_path / "checkpoint"
    whole = make(kind).fit(X, y)
    model = make(kind, n_estimators=3, warm_start=True).fit(X, y).set_params(n_estimators=8)
    kept = pickle.dumps(model)
    n_done = 3 if kind in FORESTS else 6  # forests count the new trees
    with pytest.raises(Killed):
        model.fit(X, y, checkpoint=path, checkpoint_interval=0, callbacks=[kill_after(n_done)])
    with pytest.raises(ValueError, match="earlier trees was .*, is none"):
        make(kind).fit(X, y, checkpoint=path)
    model = pickle.loads(kept).fit(X, y, checkpoint=path)
    assert_same_trees(model, whole)


@pytest.mark.parametrize("random_state", ["none", "generator"])
@pytest.mark.parametrize("kind", [dtrees.GradientBoostingRegressor, dtrees.RandomForestRegressor], ids=lambda kind: kind.__name__)
def test_a_seed_that_was_drawn_is_kept(kind, random_state, tmp_path):
    def make_anew(seed):
        return make(kind, random_state=None if random_state == "none" else np.random.RandomState(seed))

    path = tmp_path / "checkpoint"
    with pytest.raises(Killed):
        make_anew(1).fit(X, SIGNAL, checkpoint=path, checkpoint_interval=0, callbacks=[kill_after(4)])
    one, other = (make_anew(seed).fit(X, SIGNAL, checkpoint=path) for seed in (2, 3))
    assert_same(one, other)
    seed = checkpoints.unpack("dtrees_checkpoint", path.read_bytes())[0]["seed"]
    assert one._seed == other._seed == seed


def test_a_checkpoint_from_the_beginning_on(tmp_path):
    path = tmp_path / "checkpoint"
    for kind in (dtrees.GradientBoostingRegressor, dtrees.RandomForestRegressor):
        for name in list(tmp_path.iterdir()):
            name.unlink()
        with pytest.raises(Killed):
            make(kind).fit(X, SIGNAL, checkpoint=path, checkpoint_interval=1e9, callbacks=[kill_after(1)])
        arrays = safetensors.numpy.load(path.read_bytes())
        assert not any(name.startswith("trees.") for name in arrays)
        assert [found.name for found in tmp_path.iterdir()] == ["checkpoint"]
        make(kind).fit(X, SIGNAL, checkpoint=path, checkpoint_interval=1e9)
        assert safetensors.numpy.load(path.read_bytes())["trees.node_counts"].shape == (1, 8)
        assert sorted(found.name for found in tmp_path.iterdir()) == ["checkpoint", "checkpoint.previous"]


def test_wrong_arguments(tmp_path):
    model = make(dtrees.GradientBoostingRegressor)
    for interval in (-1, "10", True, float("nan")):
        with pytest.raises(ValueError, match="checkpoint_interval is .*; wants a number of seconds"):
            model.fit(X, SIGNAL, checkpoint=tmp_path / "c", checkpoint_interval=interval)
    for path in (3, b"bytes", ""):
        with pytest.raises(TypeError, match="checkpoint is .*; wants the path of a file"):
            model.fit(X, SIGNAL, checkpoint=path)
    for path, error, message in (
        (tmp_path / "no" / "c", FileNotFoundError, "does not exist"),
        (tmp_path, IsADirectoryError, "directory"),
        ("nothing://c", ValueError, "Protocol not known"),
    ):
        with pytest.raises(error, match=f"checkpoint: .*{message}"):
            model.fit(X, SIGNAL, checkpoint=path)


def changed(name, function):
    return lambda document, arrays: arrays.update({name: np.ascontiguousarray(function(arrays[name]))})


BOOSTED, FOREST = (dtrees.GradientBoostingRegressor, {"n_iter_no_change": 5}), (dtrees.RandomForestClassifier, {"oob_score": True})


@pytest.mark.parametrize(
    ("fit", "change"),
    [
        *(
            (BOOSTED, change)
            for change in (
                changed("trees.feature", lambda array: np.where(array >= 0, 77, -2).astype(np.int32)),
                changed("initial", lambda array: array.astype(np.int64)),
                changed("initial", lambda array: array * np.nan),
                changed("train_score", lambda array: array[:-1]),
                changed("train_score", lambda array: array + np.inf),
                lambda document, arrays: arrays.pop("train_score"),
                lambda document, arrays: document.update(identity=[]),
                lambda document, arrays: document.update(seed="1"),
            )
        ),
        *(
            (FOREST, change)
            for change in (
                changed("oob_sum", lambda array: array[:-1]),
                changed("oob_sum", lambda array: array + 2**60),
                changed("oob_count", lambda array: array - 10),
                lambda document, arrays: arrays.pop("oob_sum"),
                lambda document, arrays: document.update(oob_exponent=10**6),
                lambda document, arrays: document.pop("oob_exponent"),
            )
        ),
    ],
)
@pytest.mark.parametrize("random_state", [0, None])
def test_what_cannot_be_that_of_a_fit_is_refused(fit, change, random_state, tmp_path):
    kind, options = fit
    path, options = tmp_path / "checkpoint", {**options, "random_state": random_state}
    with pytest.raises(Killed):
        make(kind, **options).fit(X, target(kind), checkpoint=path, checkpoint_interval=0, callbacks=[kill_after(3)])
    rewrite(path, change, "dtrees_checkpoint")
    with pytest.raises(ValueError, match=r"checkpoint: .* Delete it to start again"):
        make(kind, **options).fit(X, target(kind), checkpoint=path)


def test_digests_of_columns_do_not_depend_on_their_neighbours():
    """Columns are divided into blocks on a cluster, some of which may have narrower floats than the whole table."""
    columns = [X[:, 0], X[:, 1].astype(np.float32), np.arange(300) % 7]
    whole = checkpoints.column_digests(presort(columns))
    assert whole == [digest for column in columns for digest in checkpoints.column_digests(presort([column]))]
    assert len(set(whole)) == 3


@pytest.mark.parametrize("kind", [dtrees.GradientBoostingRegressor, dtrees.RandomForestRegressor])
def test_a_full_disk(kind, tmp_path, monkeypatch):
    """With an existing checkpoint, the fit continues; without one, the error names the file."""
    (data, _), path, put = arguments(kind), tmp_path / "checkpoint", checkpoints._put
    written = []

    def full(place, content):
        if len(written) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        put(place, content)
        written.append(content)

    monkeypatch.setattr(checkpoints, "_put", full)
    model = make(kind, **settings_of(kind))
    with pytest.warns(UserWarning, match=f"checkpoint: .*{path}.* cannot be written .*No space left.*; the fit goes on"):
        model.fit(*data, checkpoint=path, checkpoint_interval=0)
    assert_same(model, make(kind, **settings_of(kind)).fit(*data))
    assert path.read_bytes() == written[-1]
    with pytest.raises(OSError, match=f"checkpoint: .*{tmp_path / 'other'}.* cannot be written .*No space left"):
        model.fit(*data, checkpoint=tmp_path / "other", checkpoint_interval=0)
