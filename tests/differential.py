"""A differential fuzzer: a fit gives the same model in every possible way.

``python -m tests.differential --cases 5000 --seed 0`` draws estimators, parameters and tables at random. Each case is fitted in the
plain way (one thread, in this process, a dense table), and again in some other ways: :data:`WAYS`. The bytes of the model file, of the
pickle, and predictions must be the same. A case that differs is printed as Python, once as drawn and once reduced to the necessary
fields; ``--case "Case(...)"`` runs it again.
"""

import argparse
import contextlib
import faulthandler
import functools
import itertools
import logging
import os
import pickle
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("DTREES_HELPER", "0")  # wait for kernels instead of using substitutes

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster
from scipy.sparse import csr_array

import dtrees
from dtrees.engine.run.boosting_rounds import boost
from dtrees.engine.run.lasting import LastingForest
from dtrees.ensemble.in_process import Backend
from tests.cluster.samples import in_partitions
from tests.engine.local_rows import LocalRowsExecutor
from tests.engine.shards import ShardedExecutor
from tests.random_cases import Case, draw

#: Seconds for a case, including all kernels that it compiles.
PATIENCE = 600
WAYS = ("threads", "columns", "rows", "sparse", "saved", "pickled", "continued", "reloaded", "resumed", "cluster")
PLACEMENTS = ("one-worker", "sharded", "rows", "replicated")
#: Attributes of a model that describe how it was fitted.
_CIRCUMSTANCES = {"_loading_seconds", "_growing_seconds", "_n_grown", "_grown_by", "placement_", "_members", "_packs", "n_jobs"}


def applicable(case: Case) -> list[str]:
    """Return the ways in which a case can be fitted."""
    model, names = case.estimator(), {name.removeprefix("estimator__") for name in case.parameters}
    left_out = set()
    if not isinstance(case.table(), np.ndarray) or {"monotonic_cst", "interaction_cst", "categorical_features"} & names:
        left_out.add("sparse")
    if getattr(model, "criterion", "") in ("absolute_error", "quantile"):  # these criteria are refused
        left_out.add("rows")
    if not hasattr(model, "warm_start") or model.n_estimators < 2:
        left_out |= {"continued", "reloaded", "resumed"}
    if {"n_iter_no_change", "drop_rate"} & set(names):  # a stopped fit continues when it is continued; with dropout it cannot be continued
        left_out |= {"continued", "reloaded"}
    return [way for way in WAYS if way not in left_out]


@functools.cache
def client() -> Client:
    """Return the client of a cluster of two workers that are threads of this process."""
    options = {"processes": False, "memory_limit": 1.0, "protocol": "tcp://", "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    return Client(LocalCluster(n_workers=2, threads_per_worker=1, silence_logs=logging.CRITICAL, **options))


def _in_parts(data: Any, case: Case) -> Any:
    """Return a Dask collection of up to four partitions."""
    ends = sorted(case.random(4).integers(0, case.n_rows + 1, 3))
    lengths = [int(b - a) for a, b in itertools.pairwise([0, *ends, case.n_rows])]
    if isinstance(data, np.ndarray):
        return da.from_array(data, chunks=(tuple(n for n in lengths if n), *data.shape[1:]))
    return in_partitions(data, lengths)


@contextlib.contextmanager
def _over_shards(rows: bool, case: Case) -> Iterator[None]:
    """Make trees of dense tables grow on two or three shards of this process, of columns or of rows."""
    n_shards = int(case.random(5).integers(2, 4))

    def executor(table: Any) -> Any:
        presorted = table.columns() if callable(table.columns) else table.columns
        columns = [np.append(presorted.distinct(j), np.float32(np.nan))[codes] for j, codes in enumerate(presorted.codes)]
        if not rows:
            spread = [range(i, len(columns), n_shards) for i in range(min(n_shards, len(columns)))]
            return ShardedExecutor(columns, table.target, table.weight, spread)
        ends = np.unique(np.linspace(0, table.n_rows, 2 * n_shards + 1).astype(int)).tolist()
        cuts = [list(itertools.pairwise(ends))[i::n_shards] for i in range(min(n_shards, len(ends) - 1))]
        return LocalRowsExecutor.of(columns, table.target, table.weight, cuts)

    def grow_forest(self: Backend, table: Any, plan: Any, first: int, last: int, callback: Any) -> Any:
        with contextlib.closing(executor(table)) as shards:
            return LastingForest(shards, plan, first, last, 2).run(callback)

    def boosted(self: Backend, table: Any, plan: Any, previous: Any, initial: Any, callback: Any) -> Any:
        with contextlib.closing(executor(table)) as shards:
            return boost(shards, plan, previous=previous, initial=initial, callback=callback)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Backend, "grow_forest", grow_forest)
        patch.setattr(Backend, "boost", boosted)
        patch.setattr("dtrees.engine.rows.tree.SENT_ROWS", case.n_rows // 10)
        patch.setattr("dtrees.engine.rows.tree.rows_to_send", lambda plan, n_rows, n_shards: n_rows // 10)
        yield


def fitted(case: Case, way: str, folder: Path) -> Any:
    """Return the model of a case, fitted in one way; "" is the plain way."""
    model, data = case.estimator(), case.data()
    part = 1 + case.seed % max(getattr(model, "n_estimators", 1) - 1, 1)

    def stop(progress: Any) -> None:
        if progress.done == part:
            raise InterruptedError

    match way:
        case "threads":
            model.set_params(n_jobs=2).fit(*data).set_params(n_jobs=None)
        case "columns" | "rows":
            with _over_shards(way == "rows", case):
                model.fit(*data)
        case "sparse":
            model.fit(csr_array(data[0]), *data[1:])
        case "saved":
            dtrees.save(model.fit(*data), folder / "model")
            model = dtrees.load(folder / "model")
        case "pickled":
            model = pickle.loads(pickle.dumps(model.fit(*data)))
        case "continued" | "reloaded":
            n_estimators = model.n_estimators
            model.set_params(n_estimators=part).fit(*data)
            if way == "reloaded":
                dtrees.save(model, folder / "model")
                model = dtrees.load(folder / "model")
            model.set_params(n_estimators=n_estimators).fit(*data)
        case "resumed":
            with contextlib.suppress(InterruptedError):
                case.estimator().fit(*data, callbacks=[stop], checkpoint=folder / "checkpoint", checkpoint_interval=0)
            model.fit(*data, checkpoint=folder / "checkpoint")
        case "cluster":
            placement = PLACEMENTS[case.seed % len(PLACEMENTS)]
            with client().as_current(), dask.config.set({"dtrees.placement": placement}):
                model.fit(*(one if one is None else _in_parts(one, case) for one in data))
        case _:
            model.fit(*data)
    return model


def _parts(value: Any, name: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield all data in a value as bytes, by its path."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        yield name, repr((value.dtype, value.shape)).encode() + value.tobytes()
    elif isinstance(value, dict):
        for key in value.keys() - _CIRCUMSTANCES:
            yield from _parts(value[key], f"{name}.{key}")
    elif isinstance(value, list | tuple | np.ndarray):
        yield name, repr(len(value)).encode()
        for i, one in enumerate(value):
            yield from _parts(one, f"{name}.{i}")
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        yield from _parts(value.__getstate__(), name)
    else:
        yield name, repr(value).encode()


def outcome(model: Any, X: Any, folder: Path) -> dict[str, bytes]:
    """Return the results of a fit as bytes, by name: the model file, the content of a pickle, predictions."""
    found = dict(_parts(model, "pickled"))
    try:
        dtrees.save(model, folder / "saved")
        found["file"] = (folder / "saved").read_bytes()
    except ValueError as error:
        found["file"] = str(error).encode()
    for name in ("predict", "predict_proba", "decision_function", "apply", "feature_importances_", "oob_score_"):
        if hasattr(model, name):
            value = getattr(model, name)
            found |= dict(_parts(value if name.endswith("_") else value(X), name))
    return found


def result(case: Case, way: str) -> dict[str, bytes]:
    """Return the results of a fit in one way, or that it was refused, or that it failed unexpectedly."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        logging.disable(logging.ERROR)
        try:
            return outcome(fitted(case, way, Path(folder)), case.table(), Path(folder))
        except ValueError as error:
            return {"refused": str(error).encode()}
        except Exception as error:
            return {"failed": f"{type(error).__name__}: {error}".encode()}
        finally:
            logging.disable(logging.NOTSET)


def differences(case: Case, ways: Iterable[str], wanted: dict[str, bytes] | None = None) -> Iterator[tuple[str, list[str]]]:
    """Yield each way that gives another model for a case, and the differences; "" for a plain fit that fails.

    ``wanted``: the results of the plain fit, if known.
    """
    wanted = result(case, "") if wanted is None else wanted
    if "failed" in wanted:
        yield "", [wanted["failed"].decode()]
        return
    for way in ways:
        found = result(case, way)
        names = wanted.keys() | found.keys()
        if "refused" in wanted.keys() & found.keys() or b"placement" in found.get("refused", b""):
            continue
        # Models from files, and from a cluster, lack some data about their fit.
        unknown = {"saved": "pickled", "reloaded": "pickled._", "cluster": "pickled._"}.get(way, "-")
        names = {name for name in names if not name.startswith(unknown)}
        different = sorted(name for name in names if wanted.get(name) != found.get(name))
        if different:
            errors = [f"{name}: {one[name].decode()}" for one in (wanted, found) for name in one if name in ("refused", "failed")]
            yield way, errors or different


def simpler(case: Case) -> Iterator[Case]:
    """Yield cases that are slightly simpler than this one."""
    for name in case.parameters:
        if not name.endswith(("n_estimators", "random_state")):
            yield replace(case, parameters={key: value for key, value in case.parameters.items() if key != name})
    if case.weights:
        yield replace(case, weights="")
    if "monotonic_cst" not in case.parameters and len(case.columns) > 1:
        yield from (replace(case, columns=case.columns[:j] + case.columns[j + 1 :]) for j in range(len(case.columns)))
    if case.n_rows > 1:
        yield replace(case, n_rows=case.n_rows // 2)


def shrunk(case: Case, way: str) -> Case:
    """Return the simplest case that still differs in this way."""
    for one in simpler(case):
        if way in ["", *applicable(one)] and any(differences(one, [way] if way else [])):
            return shrunk(one, way)
    return case


def run(cases: Iterable[tuple[Any, Case]], *, n_ways: int = len(WAYS), on_cluster: float = 0.0) -> Counter[str]:
    """Try some ways for each case, print those that differ, and return the numbers of tried, refused and different ones.

    ``on_cluster``: the share of cases whose ways include a cluster.
    """
    count: Counter[str] = Counter()
    for number, case in cases:
        random = case.random(6)
        ways = [way for way in applicable(case) if way != "cluster" or random.random() < on_cluster]
        ways = [str(way) for way in random.choice(ways, min(n_ways, len(ways)), replace=False)]
        wanted = result(case, "")
        count.update(["cases", *["refused"] * ("refused" in wanted), *(f"by {way}" for way in ways)])
        for way, what in differences(case, ways, wanted):
            count["DIFFERENT"] += 1
            sys.stdout.write(f"case {number}, {way or 'plainly fitted'}: {', '.join(what[:6])}\n  {case}\n")
            sys.stdout.flush()  # before the search for a smaller case, which takes long
            sys.stdout.write(f"  {shrunk(case, way)}\n")
        if count["cases"] % 250 == 0:
            sys.stdout.write(f"{dict(count)}\n")
            sys.stdout.flush()
    return count


def watched(numbers: Iterable[int], seed: int, few_kernels: bool) -> Iterator[tuple[int, Case]]:
    """Yield the cases with given numbers; one that takes too long ends the process."""
    for number in numbers:
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        yield number, draw(seed, number, few_kernels)


def main() -> None:
    """Try many cases."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000, help="how many; default 1000")
    parser.add_argument("--seed", type=int, default=0, help="of all cases; default 0")
    parser.add_argument("--first", type=int, default=0, help="the number of the first; default 0")
    parser.add_argument("--ways", type=int, default=4, help="ways to try for each case, drawn at random; default 4")
    parser.add_argument("--on-cluster", type=float, default=0.1, help="share of cases in which a cluster may be drawn; default 0.1")
    parser.add_argument("--few-kernels", action="store_true", help="only cases whose kernels are compiled in a few minutes")
    parser.add_argument("--case", help="one case, as it was written, in all ways")
    options = parser.parse_args()
    began = time.perf_counter()
    if options.case:
        count = run([("given", eval(options.case))], on_cluster=1.0)
    else:
        cases = watched(range(options.first, options.first + options.cases), options.seed, options.few_kernels)
        count = run(cases, n_ways=options.ways, on_cluster=options.on_cluster)
    sys.stdout.write(f"{dict(count)} in {time.perf_counter() - began:.0f} s\n")
    sys.stdout.flush()
    os._exit(count["DIFFERENT"] > 0)  # without the seconds that closing a cluster takes


if __name__ == "__main__":
    main()
