"""Checkpoints: files with the finished trees of a fit, from which the next run of the same fit continues.

A checkpoint has trees, scores and the identity of the fit, but no predictions and no state of shards. These are computed again by applying
the trees to the rows (:mod:`dtrees.engine.shard.tree`), which is exact: the model equals that of an uninterrupted run, byte for byte, also
with another number of threads or workers.

Terms
-----
identity
    everything that determines the trees: the estimator's parameters as they apply to the table, the seed, the data (digests of every
    column, the target and the weights), the trees of an earlier fit (with ``warm_start``), and the version of dtrees. A checkpoint of
    another identity is refused. The time of stopping is not included: ``n_estimators``, early stopping and evaluation sets may change
    between runs.
previous
    the preceding checkpoint, stored as ``PATH.previous``.

Files are replaced atomically: a new one is written under a temporary name, the old one is renamed, and then the new one gets its name.
Whenever a run ends, one of the two exists and is complete. If the newer one is damaged (by a full disk, for example), the previous one is
used. Files contain no pickle; the format is that of model files (:mod:`dtrees.files`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, BoostingResult, ForestPlan, ForestResult
from dtrees.ensemble.backend import Table
from dtrees.ensemble.input.plain_data import take
from dtrees.ensemble.input.warning import warn
from dtrees.files import atomic_file, pack, unpack
from dtrees.tree.stacking import stacked, unstacked
from dtrees.tree.tree import Tree

if TYPE_CHECKING:
    from dtrees.ensemble.in_process import Backend
from dtrees.version import __version__

logger = logging.getLogger("dtrees")

#: Version of the format that is written; earlier versions can be read.
FORMAT_VERSION = 2

_KEY = "dtrees_checkpoint"

#: Fields of plans that do not affect the trees, or are described separately.
_LEFT_OUT = {
    "n_rounds",
    "tol",
    "scoring",
    "scores_before",
    "stopping",
    "checkpoint",
    "out_of_bag",
    "seed",
    "rules",
    "n_iter_no_change",
    "validation_fraction",
}

#: A bound on exponents of floats.
_LARGEST_EXPONENT = 1100

Plan = TypeVar("Plan", ForestPlan, BoostingPlan)


def with_checkpoint(
    plan: Plan,
    estimator: Any,
    backend: Backend,
    table: Table,
    path: Any,
    interval: Any,
    *,
    keep: bool,
    initial: NDArray[np.float64] | None = None,
) -> Plan:
    """Return a plan that stores its trees in a checkpoint; if one exists, the fit continues from it, with its seed.

    Parameters
    ----------
    plan : ForestPlan or BoostingPlan
    estimator : TreeEstimator
        The estimator being fitted.
    backend, table
        The training set.
    path : str or path-like
        A file, or an fsspec URL.
    interval : float
        Seconds.
    keep : bool
        Whether the fit continues from the trees of an earlier one.
    initial : ndarray of float64 or None
        The initial raw predictions of boosting.
    """
    if isinstance(interval, bool) or not isinstance(interval, int | float | np.number) or not interval >= 0:
        raise ValueError(f"checkpoint_interval is {interval!r}; wants a number of seconds of at least 0")
    previous = [tree for group in estimator._trees.groups for tree in group] if keep else []
    data = backend.fingerprint(table) + ("" if initial is None else array_digest(initial))
    identity = {**_describe(plan), "estimator": type(estimator).__name__, "data": data, "earlier trees": _digest_trees(previous)}
    checkpoint = FileCheckpoint(
        path=absolute_path(path),
        interval=float(interval),
        identity=tuple(sorted(identity.items())),
        plan=plan,
        any_seed=not keep and not isinstance(estimator.random_state, int | np.integer),  # a random seed gives way to that of the checkpoint
        n_features=estimator.n_features_in_,
        n_previous=estimator._trees.n_rounds if keep else 0,
        n_rows=table.n_rows,
    )
    seed = checkpoint.find_seed()
    if seed is not None and seed != plan.seed:
        plan = replace(plan, seed=seed)
        checkpoint = replace(checkpoint, plan=plan)
    return replace(plan, checkpoint=checkpoint)


@dataclass(frozen=True)
class FileCheckpoint:
    """The checkpoint of one fit at one path; see :class:`dtrees.engine.plan.plans.Checkpoint`.

    Attributes
    ----------
    path : str
    interval : float
        Seconds between two checkpoints.
    identity : tuple of pairs of str
        Names and descriptions of everything that determines the trees.
    plan : ForestPlan or BoostingPlan
        The plan without its checkpoint.
    any_seed : bool
        Whether a checkpoint with another seed is accepted.
    n_features : int
        Number of columns of the trees.
    n_previous : int
        Number of trees or rounds of an earlier fit; the scores of such rounds are not stored here.
    n_rows : int
        Number of rows with out-of-bag sums; 0 without these.
    """

    path: str
    interval: float
    identity: tuple[tuple[str, str], ...]
    plan: ForestPlan | BoostingPlan
    any_seed: bool
    n_features: int
    n_previous: int
    n_rows: int

    def read(self) -> BoostingResult | ForestResult | None:
        """Return the stored result; None if there is none.

        Raises
        ------
        ValueError
            If the checkpoint is of another fit, or if neither it nor the previous one can be read.
        """
        found = self._find(logger.warning)
        if found is None:
            return None
        document, arrays = found
        try:
            result = self._restore(document, arrays)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ValueError(f"checkpoint: {self.path!r} holds no trees of this fit: {error}. Delete it to start again") from error
        n = len(result.trees) if isinstance(result, ForestResult) else len(result.rounds)
        logger.info("going on from the checkpoint %s with %d %s", self.path, n, "trees" if isinstance(result, ForestResult) else "rounds")
        return result

    def find_seed(self) -> int | None:
        """Return the seed of the stored fit, None if there is none; raises as :meth:`read` does.

        Warns if the latest checkpoint is damaged.
        """
        found = self._find(warn)
        return None if found is None else int(found[0]["seed"])  # checked when it was read

    def write(self, result: BoostingResult | ForestResult) -> None:
        """Replace the checkpoint, which becomes the previous one.

        If there is a checkpoint and the next cannot be written (for example on a full disk), this warns and leaves the old one.

        Raises
        ------
        OSError
            If the first checkpoint cannot be written.
        """
        arrays: dict[str, NDArray[Any]]
        document: dict[str, Any] = {"format_version": FORMAT_VERSION, "identity": dict(self.identity), "seed": self.plan.seed}
        if isinstance(result, BoostingResult):
            groups = list(map(list, zip(*result.rounds, strict=True)))
            arrays = {"initial": result.initial, "train_score": result.train_score, "validation_score": result.validation_score}
            if self._draws_rows:
                arrays["out_of_bag"] = result.out_of_bag
        else:
            groups, arrays = [result.trees], {}
            if result.oob_sum is not None and result.oob_count is not None:
                document["oob_exponent"] = result.oob_exponent
                arrays = {"oob_sum": result.oob_sum, "oob_count": result.oob_count}
        try:
            _put(self.path, pack(_KEY, document, {**arrays, **(stacked(groups) if groups and groups[0] else {})}))
        except OSError as error:
            if _get(self.path) is None:
                message = f"checkpoint: {self.path!r} cannot be written ({error})"
                raise (type(error)(message) if error.errno is None else type(error)(error.errno, message)) from error
            warn(f"checkpoint: {self.path!r} cannot be written ({error}); the fit goes on, with the checkpoint before it")

    @property
    def _draws_rows(self) -> bool:
        """Whether rounds of boosting draw rows, and the undrawn rows are scored too."""
        return isinstance(self.plan, BoostingPlan) and self.plan.scores_undrawn

    def _find(self, tell: Callable[[str], None]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
        damage = None
        for path in (self.path, _previous(self.path)):
            content = _get(path)
            if content is None:
                continue
            try:
                document, arrays = unpack(_KEY, content)
            except ValueError as error:
                damage = damage or f"{path!r} is damaged or no checkpoint: {error}"
                tell(f"checkpoint: {damage}; looking for the previous one")
                continue
            self._check_identity(document, path)
            return document, arrays
        if damage is not None:
            raise ValueError(f"checkpoint: {damage}, and there is no previous one. Name another file, or delete it if it is a checkpoint")
        return None

    def _check_identity(self, document: dict[str, Any], path: str) -> None:
        if document.get("format_version") not in range(1, FORMAT_VERSION + 1):
            raise ValueError(
                f"checkpoint: {path!r} is of format {document.get('format_version')!r}; wants one up to {FORMAT_VERSION}. "
                "Use the dtrees that wrote it, or name another file"
            )
        found, own = document.get("identity"), dict(self.identity)
        if type(found) is not dict or not all(type(text) is str for text in found.values()):
            found = None
        if found is None or type(document.get("seed")) is not int or not 0 <= document["seed"] < 2**62:
            raise ValueError(f"checkpoint: {path!r} does not say which fit it is of. Delete it to start again, or name another file")
        if not self.any_seed:
            found, own = {**found, "seed": str(document["seed"])}, {**own, "seed": str(self.plan.seed)}
        differences = [
            f"{name} was {_shown(found.get(name))}, is {_shown(own.get(name))}"
            for name in sorted({*found, *own})
            if found.get(name) != own.get(name)
        ]
        if differences:
            raise ValueError(f"checkpoint: {path!r} is of another fit ({'; '.join(differences)}). Name another file, or fit what it is of")

    def _restore(self, document: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> BoostingResult | ForestResult:
        plan = self.plan
        n_groups, n_values = (plan.trees_per_round, 1) if isinstance(plan, BoostingPlan) else (1, plan.n_values)
        groups: list[list[Tree]] = [[] for _ in range(n_groups)]
        if "trees.node_counts" in arrays:
            groups = unstacked(arrays, n_groups, n_values, self.n_features)
        n_trees = len(groups[0])
        if isinstance(plan, BoostingPlan):
            n_new = n_trees - self.n_previous
            n_held_out = 0 if plan.n_iter_no_change is None else n_new
            return BoostingResult(
                rounds=[list(trees) for trees in zip(*groups, strict=True)],
                initial=_checked(arrays, "initial", np.float64, (plan.loss.n_outputs,)),
                train_score=_checked(arrays, "train_score", np.float64, (n_new,)),
                validation_score=_checked(arrays, "validation_score", np.float64, (n_held_out,), finite=False),
                out_of_bag=_checked(arrays, "out_of_bag", np.float64, (n_new, 2), finite=False) if self._draws_rows else np.empty((0, 2)),
            )
        if not plan.out_of_bag or not n_trees:
            return ForestResult(groups[0])
        total = _checked(arrays, "oob_sum", np.int64, (self.n_rows, n_values))
        count = _checked(arrays, "oob_count", np.int64, (self.n_rows,))
        # A tree adds at most 2**40 to an out-of-bag row.
        if count.min() < 0 or count.max() > n_trees or np.any(np.abs(total) > count[:, np.newaxis] * 2**41):
            raise ValueError(f"the sums of predictions out of bag cannot be those of {n_trees} trees")
        exponent = take(document, "oob_exponent", int, "it")
        if abs(exponent) > _LARGEST_EXPONENT:
            raise ValueError(f"oob_exponent is {exponent!r:.40}")
        return ForestResult(groups[0], total, count, exponent)


def _checked(arrays: dict[str, NDArray[Any]], name: str, dtype: type, shape: tuple[int, ...], *, finite: bool = True) -> NDArray[Any]:
    """Return an array after checking its dtype, shape and, if ``finite``, its values; raises ValueError or KeyError."""
    array = arrays[name]
    if array.dtype != dtype or array.shape != shape or (finite and not np.isfinite(array).all()):
        raise ValueError(f"{name} is of dtype {array.dtype} and shape {array.shape}; wants finite {np.dtype(dtype)} of shape {shape}")
    return array


def _describe(plan: ForestPlan | BoostingPlan) -> dict[str, str]:
    """Return the fields of a plan that determine the trees, by name."""
    described = {name: repr(value) for name, value in plan.rules.described().items()}
    described |= {name: repr(getattr(plan, name)) for name in plan.__dataclass_fields__ if name not in _LEFT_OUT}
    if isinstance(plan, ForestPlan):
        described["oob_score"] = repr(plan.out_of_bag)
    else:
        described["rows held out"] = repr(0.0 if plan.n_iter_no_change is None else plan.validation_fraction)
    described["dtrees"] = __version__
    return described


def _digest_trees(trees: Sequence[Tree]) -> str:
    return array_digest(*(getattr(tree, name) for tree in trees for name in Tree.ARRAYS)) if trees else "none"


def table_digest(table: Table, columns: Sequence[str], target: str, weight: str | None) -> str:
    """Return the digest of a training set, given the digests of its columns, target and weights."""
    classes: Any = [[str(label) for label in target.labels.tolist()] for target in table.by_target]
    classes = classes if table.n_targets > 1 and classes else classes[0] if classes else None
    parts = {"schema": table.schema.to_json(), "classes": classes, "columns": list(columns), "target": target, "weight": weight}
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def array_digest(*arrays: NDArray[Any]) -> str:
    """Return a digest of arrays."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def column_digests(columns: Any) -> list[str]:
    """Return a digest of each presorted column, independent of the other columns; a single digest for a sparse table."""
    from dtrees.split.table.sparse_columns import SparseColumns

    if isinstance(columns, SparseColumns):
        return [array_digest(columns.starts, columns.rows, columns.codes, columns.offsets, columns.values.astype(np.float64))]
    return [array_digest(columns.codes[j], columns.distinct(j).astype(np.float64)) for j in range(columns.n_columns)]


def _shown(description: str | None) -> str:
    """Shorten descriptions without readable content, such as digests."""
    return "absent" if description is None else description if len(description) <= 40 else f"{description[:10]}..."


# --- files ---


def absolute_path(path: Any) -> str:
    """Return an address that is valid in every process of a machine."""
    path = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(path, str) or not path:
        raise TypeError(f"checkpoint is {path!r}; wants the path of a file, or an fsspec URL")
    return path if "://" in path or "::" in path else os.path.abspath(os.path.expanduser(path))


def _previous(path: str) -> str:
    return f"{path}.previous"


@contextlib.contextmanager
def _named() -> Iterator[None]:
    """Have errors of file systems name the argument."""
    try:
        yield
    except (OSError, ImportError, ValueError) as error:
        raise type(error)(f"checkpoint: {error}") from error


@_named()
def _get(path: str) -> bytes | None:
    """Return a file's content, None if there is no such file."""
    from fsspec.core import url_to_fs

    system, place = url_to_fs(path)
    try:
        return bytes(system.cat_file(place))
    except FileNotFoundError:
        return None


def _put(path: str, content: bytes) -> None:
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    system, place = url_to_fs(path)
    if isinstance(system, LocalFileSystem):
        place = os.path.realpath(place)
        with atomic_file(place) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            with contextlib.suppress(FileNotFoundError):
                os.replace(place, _previous(place))
        return
    temporary = f"{place}.{secrets.token_hex(6)}.tmp"
    try:
        system.pipe_file(temporary, content)
        if system.exists(place):
            system.mv(place, _previous(place))
        system.mv(temporary, place)
    except BaseException:
        with contextlib.suppress(Exception):
            system.rm_file(temporary)
        raise
