"""Model files that are changed at random: each is refused with the documented error, or is a valid model.

Half of the files get a checksum that matches the change, like a malicious file: they may load as another model, whose predictions must
agree with its trees. The other half are changed byte by byte: a model that loads must predict the same as before. Files of all kinds of
models are tried, half of them mapped into memory, too.

``python -m tests.changed_model_files --files 20000`` tries that number of files.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import faulthandler
import functools
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dtrees
from dtrees.files import pack, unpack
from dtrees.interop import dtrees_numpy
from tests import earlier_models
from tests.tree.trees import naive_leaf

#: Seconds allowed for a file.
PATIENCE = 120
#: Models of earlier versions with kernels that take long to compile.
RARE = {
    "tree-absolute-error",
    "tree-quantile",
    "tree-several",
    "tree-several-classes",
    "tree-entropy",
    "forest-poisson",
    "boosting-in-order",
}

ODD_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 7, 2**31, 2**62, 2**64, 10**30, -(10**30), 10**400, 0.5, -0.5, 1e-320, 1e308,
    float("nan"), float("inf"),
    "", "a", "x", "numeric", "categorical", "unknown", "float64", "int8", "<U3", "<U1", "<U400000000", "O", "|b1", "<f8", "<i4",
    "<f16", "<M8[s]",
    "V8", "i4,i4", "(2,3)f4", "S3", "balanced", "log_loss", "\ud800", "a\0", "evil" * 1000, [], [[]], {}, [None], [1, 2], ["a",
    "b"], ["b", "a"],
    [1, "a"], ["a", "a"], {"a": 1}, {"dict": []}, {"dict": [[[1], 2]]}, {"dict": [["a", 2.0]]}, {"dict": [[{}, {}]]},
    {"dict": 3}, [["a", "<i4"]],
]  # fmt: skip


def nested(depth: int) -> Any:
    value: Any = 1
    for i in range(depth):
        value = [value] if i % 2 else {"dict": [[value, value]]} if i % 3 == 0 and depth < 20 else {"a": value}
    return value


def rewrite(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None], key: str = "dtrees") -> None:
    """Change the document and arrays of a file, with a matching checksum, as an attacker could."""
    document, arrays = unpack(key, path.read_bytes())
    change(document, arrays)
    path.write_bytes(pack(key, document, arrays))


def models(rare: bool) -> list[Any]:
    """Return models of every kind; with ``rare``, also those with kernels of their own, which growing more trees would compile."""
    random = np.random.default_rng(5)
    few, many, labels = random.normal(size=(60, 4)), random.normal(size=(3000, 3)), np.array([7.0, 2.0, -3.0])
    return [
        *(dtrees.load(path) for path in sorted(earlier_models.FOLDER.glob("*.dtrees")) if rare or path.stem not in RARE),
        dtrees.RandomForestRegressor(n_estimators=2, random_state=0).fit(many, many[:, 0] * many[:, 1]),
        dtrees.GradientBoostingRegressor(reg_lambda=0.0, n_estimators=40).fit(few, few[:, 0]),
        dtrees.IsolationForest(n_estimators=3, contamination=0.1, random_state=0).fit(many),
        dtrees.GradientBoostingClassifier(n_estimators=3, eval_metric=["auc"]).fit(few, labels[np.digitize(few[:, 0], [-0.5, 0.5])]),
    ]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to each part of a JSON document."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def change_document(state: dict[str, Any], random: np.random.Generator) -> None:
    ways = [way for way in places(state) if way]
    # Short paths are as likely as long ones, which are many in long lists.
    depth = random.integers(1, max(map(len, ways)) + 1)
    ways = [way for way in ways if len(way) == depth]
    *way, last = ways[random.integers(len(ways))]
    holder = state
    for key in way:
        holder = holder[key]
    what = random.integers(6)
    if what == 0:
        del holder[last]
    elif what == 1 and isinstance(holder, list):
        holder.insert(last, copy.deepcopy(holder[last]))
    elif what == 2 and isinstance(holder, dict):
        holder[str(ODD_VALUES[random.integers(len(ODD_VALUES))])[:20]] = holder.pop(last)
    elif what == 3:
        holder[last] = nested(int(random.choice([2, 5, 100, 450, 900])))
    elif what == 4 and isinstance(holder[last], int | float) and not isinstance(holder[last], bool):
        holder[last] = holder[last] * int(random.integers(-3, 4)) + int(random.integers(-2, 3))
    else:
        holder[last] = copy.deepcopy(ODD_VALUES[random.integers(len(ODD_VALUES))])


def change_arrays(arrays: dict[str, Any], random: np.random.Generator) -> None:
    name = str(random.choice(sorted(arrays)))
    array = arrays[name]
    what = random.integers(7)
    if what == 0:
        del arrays[name]
    elif what == 1:
        arrays[name] = array.astype(random.choice(["int8", "uint8", "int32", "int64", "float16", "float32", "float64", "bool", "uint64"]))
    elif what == 2:
        arrays[name] = array.reshape(-1)[: random.integers(array.size + 1)]
    elif what == 3:
        arrays[name] = array[..., np.newaxis] if random.integers(2) or not array.size else array.reshape(-1)[:1].reshape(())
    elif what == 4:
        arrays[name] = np.concatenate([np.atleast_1d(array)] * 2)
    elif what == 5:
        arrays[str(random.choice([*sorted(arrays), "odd", "initial", "trees.children_left"]))] = array
    elif array.size:
        array = arrays[name] = array.copy()
        odd = {"f": [np.nan, np.inf, -np.inf, 1e308, 0.0, -1.0], "b": [True, False]}.get(array.dtype.kind, [-2, -1, 0, 1, 2, 100])
        with np.errstate(over="ignore"):
            array.reshape(-1)[random.integers(array.size)] = np.array(odd[random.integers(len(odd))]).astype(array.dtype)


def change_bools(arrays: dict[str, Any], random: np.random.Generator) -> None:
    """Set a boolean byte to a number other than 0 and 1."""
    names = [name for name, array in arrays.items() if array.dtype == np.bool_ and array.size]
    if names:
        name = str(random.choice(names))
        array = arrays[name] = arrays[name].copy()
        array.view(np.uint8).reshape(-1)[random.integers(array.size)] = random.integers(2, 256)


def change(document: dict[str, Any], arrays: dict[str, Any], files: list[File], random: np.random.Generator) -> None:
    what = random.integers(20)
    if what == 0:
        document["estimator"] = files[random.integers(len(files))].document["estimator"]
    elif what < 12:
        change_document(document["state"], random)
    elif what == 12:
        change_bools(arrays, random)
    elif arrays:
        change_arrays(arrays, random)


def change_bytes(content: bytes, random: np.random.Generator) -> bytes:
    """Damage a file: flip bits, remove, repeat or replace bytes, or truncate it."""
    data = bytearray(content)
    header = 8 + int.from_bytes(content[:8], "little")
    for _ in range(random.integers(1, 4)):
        # The header is short, and every byte of it matters.
        at = int(random.integers(min(header, len(data)) if random.integers(2) else len(data)))
        length = int(random.integers(1, 65))
        what = random.integers(8)
        if what < 2:
            data[at] ^= 1 << int(random.integers(8))
        elif what == 2:
            data[at : at + length] = random.bytes(len(data[at : at + length]))
        elif what == 3:
            data[at : at + length] = bytes(len(data[at : at + length]))
        elif what == 4:
            del data[at : at + length]
        elif what == 5:
            data[at:at] = data[at : at + length]
        elif what == 6:
            digit = [i for i in range(min(header, len(data))) if 48 <= data[i] < 58]
            data[digit[random.integers(len(digit))] if digit else at] = int(random.integers(48, 58))
        else:
            del data[at:]
        if not data:
            break
    return bytes(data)


def rows_for(model: Any, random: np.random.Generator) -> Any:
    """Return rows that a model must be able to predict, according to its columns."""
    columns = model._schema.columns
    if columns[0].name is None:
        return random.normal(size=(7, len(columns)))
    frame = {}
    for i, column in enumerate(columns):
        known = [*column.categories, None] if column.kind == "categorical" else [0.5, -1.0, np.nan]
        frame[i] = pd.Series(
            [known[j] for j in random.integers(len(known), size=7)], dtype=object if column.kind == "categorical" else float
        )
    frame = pd.DataFrame(frame)
    frame.columns = [column.name for column in columns]
    return frame


def use(model: Any, path: Path, random: np.random.Generator) -> None:
    X = rows_for(model, random)
    for method in ("predict", "predict_proba", "predict_log_proba", "decision_function", "apply", "decision_path"):
        if hasattr(model, method):
            getattr(model, method)(X)
    for name in ("estimators_", "tree_", "feature_importances_", "init_"):
        getattr(model, name, None)
    if hasattr(model, "staged_predict"):
        list(model.staged_predict(X))
    for member in np.ravel(getattr(model, "estimators_", ()))[:2]:
        member.predict(X)
    repr(model)
    if not is_bag(model):
        dtrees.export_text(model)
        dtrees.export_graphviz(model)
        with contextlib.suppress(ValueError, OverflowError):  # scikit-learn cannot hold some numbers
            dtrees.to_sklearn(model)
    if hasattr(model, "warm_start"):
        add_a_tree(copy.deepcopy(model), X)
    dtrees.save(model, path, mappable=bool(random.integers(2)))
    again = dtrees.load(path)
    assert repr(again) == repr(model)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def add_a_tree(model: Any, X: Any) -> None:
    """Continue a fit on rows that may be refused."""
    classes = getattr(model, "classes_", [0.0, 1.0])
    columns = [np.resize(labels, len(X)) for labels in (classes if isinstance(classes[0], np.ndarray) else [classes] * model._n_targets)]
    model.set_params(warm_start=True, n_estimators=model._trees.n_rounds + 1)
    with contextlib.suppress(ValueError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, columns[0] if len(columns) == 1 else np.column_stack(columns))


def is_bag(model: Any) -> bool:
    return isinstance(model, dtrees.BaggingRegressor | dtrees.BaggingClassifier)


def own_raw(model: Any, X: Any) -> Any:
    """Return the raw predictions of a model; for a bag, those of its boosters side by side."""
    return np.hstack([one._trees.raw(one._schema.matrix(X), 1) for one in (model.estimators_ if is_bag(model) else [model])])


def naive_raw(model: Any, X: Any) -> Any:
    """Return raw predictions by walking each row through each tree; for a bag, those of its boosters side by side."""
    if is_bag(model):
        return np.hstack([naive_raw(booster, X) for booster in model.estimators_])
    matrix = model._schema.matrix(X)
    outputs = []
    for group in model._trees.groups:
        total = np.zeros((len(matrix), group[0].value.shape[1]))
        for tree in group:
            total += tree.value[[naive_leaf(tree, row) for row in matrix]]
        outputs.append(total)
    raw = np.hstack(outputs)
    return raw if model._trees.initial is None else raw + model._trees.initial


@dataclass
class File:
    """A valid model file."""

    model: Any
    mappable: bool
    content: bytes
    document: dict[str, Any]
    arrays: dict[str, Any]


@functools.cache
def sound_files(rare: bool) -> list[File]:
    """Return a file of each model, saved with and without ``mappable``."""
    found = []
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        path = Path(folder) / "model"
        for model in models(rare):
            for mappable in (False, True):
                dtrees.save(model, path, mappable=mappable)
                for mmap_mode in (None, "r") if mappable else (None,):
                    use(dtrees.load(path, mmap_mode=mmap_mode), Path(folder) / "again", np.random.default_rng(0))
                found.append(File(model, mappable, path.read_bytes(), *unpack("dtrees", path.read_bytes())))
    return found


def try_file(seed: int, folder: Path, rare: bool = True) -> str:
    """Change a file, load it, and return what happened; raises AssertionError for a wrong result."""
    random = np.random.default_rng(seed)
    files = sound_files(rare)
    file = files[random.integers(len(files))]
    path = folder / "model"
    has_checksum = seed % 2 == 0
    try:
        if has_checksum:
            document, arrays = copy.deepcopy((file.document, file.arrays))
            for _ in range(random.integers(1, 3)):
                change(document, arrays, files, random)
            path.write_bytes(pack("dtrees", document, arrays))
        else:
            path.write_bytes(change_bytes(file.content, random))
    except (RecursionError, UnicodeEncodeError):
        return "no file can hold it"
    loaded = {}
    for mmap_mode in (None, "r") if file.mappable else (None,):
        try:
            loaded[mmap_mode] = dtrees.load(path, mmap_mode=mmap_mode)
        except ValueError as error:
            assert "model' " in str(error), f"seed {seed}: {error}"
        except BaseException as error:
            raise AssertionError(f"seed {seed}: load raised {type(error).__name__}: {error}") from error
    try:
        plain = dtrees_numpy.load(path)
    except ValueError:
        plain = None
    if not loaded:
        return "refused"
    assert None in loaded, f"seed {seed}: refused, but not when it was mapped"
    try:
        X = rows_for(loaded[None], random)
        raw = naive_raw(loaded[None], X)
        for model in loaded.values():
            same = np.array_equal(own_raw(model, X), raw, equal_nan=True)
            assert same, "predictions are not those of the trees"
        if not has_checksum:
            np.testing.assert_array_equal(loaded[None].predict(X), file.model.predict(X))
        if plain is not None:
            np.testing.assert_array_equal(plain.predict(X), loaded[None].predict(X))
        assert has_checksum or plain is not None, "refused by the module for NumPy alone"
        for model in loaded.values():
            use(model, folder / "again", np.random.default_rng(seed))
    except BaseException as error:
        raise AssertionError(f"seed {seed}: {type(model).__name__} loaded, and then {type(error).__name__}: {error}") from error
    if has_checksum:
        return "loaded, another sound model"
    return "loaded, the same model"


def try_files(first: int, n_files: int, folder: Path, rare: bool = True) -> Counter[str]:
    """Try files by number."""
    found: Counter[str] = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for seed in range(first, first + n_files):
            found[try_file(seed, folder, rare)] += 1
    return found


def main() -> None:
    """Try many files; a crash or a hang ends the run, and the last line printed has the number of the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=20_000, help="how many; default 20000")
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    options = parser.parse_args()
    faulthandler.enable()
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.first, options.first + options.files):
            faulthandler.dump_traceback_later(PATIENCE, exit=True)
            print(f"file {seed}", dict(total), file=sys.stderr, end="\r")
            try:
                total.update(try_files(seed, 1, Path(folder)))
            except AssertionError as error:
                total["NOT AS IT SHOULD BE"] += 1
                print(error, flush=True)
    print(dict(total))
    sys.exit(any(name.isupper() for name in total))


if __name__ == "__main__":
    main()
