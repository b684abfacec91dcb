"""Exchanges between shards while they carry out a message together, step by step and with trees side by side.

Shards send each other sums and rows, or which rows splits send left. That is too much data for a detour through the coordinator, and too
many round trips. How a shard carries out a message is a *program*: at each :class:`Step` it has payloads for other shards and waits for
their payloads, until it returns its reply. All participating shards run their programs at the same time. Nobody acknowledges payloads, as
the steps of the receivers imply that they have arrived.

All shards have the same information about a tree and so make the same decisions. Each takes all steps of the tree
(:mod:`dtrees.engine.tree.program`), does the work for its own columns or rows, and sends all others the result. Decisions therefore do not
pass through the coordinator, and no shard waits for one.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.split.policy import FOLD

Arrays = tuple[NDArray[Any], ...]
_NONE = np.empty(0, np.int64)

#: If more than 1 / 100 of the cells are flagged, finer parts are tried, if less than 1 / 1000, coarser ones. Finer ones are then used for
#: 20 trees.
_MUCH_FLAGGED_SHARE, _FLAGGED_SHARE, _TREES_AS_FINE = 100, 1000, 20
_FIRST_GRAIN = 1
#: If more than 1 / 16 of the cells of a level are flagged, the next level already uses finer parts. This reduces the time of the first tree
#: of noise from 2.9 to 1.9 s, including loading (1M x 28, two shards).
_FAR_TOO_MUCH_FLAGGED_SHARE = 16


class Payload(NamedTuple):
    """Arrays from one shard to another for one step, identified by fit, epoch and serial number."""

    fit: str
    epoch: int
    serial: int
    name: str
    sender: int
    arrays: Arrays

    @property
    def key(self) -> tuple[str, int, int, str, int]:
        """The identity of the payload: all fields but the arrays."""
        return self[:5]


class Step(NamedTuple):
    """A step of a program: ``payloads`` by receiving shard, and the ``senders`` whose payloads are awaited.

    Its result is the list of arrays of each sender, which may be empty. A payload must be awaited in the exchange in which it is sent, as a
    shard that has replied no longer receives any. All shards that take part in an exchange take the same steps. If several programs take
    their steps together, the name of the step combines theirs (:func:`side_by_side`).
    """

    fit: str
    epoch: int
    serial: int
    name: str
    payloads: Mapping[int, Payload]
    senders: Sequence[int]

    @property
    def keys(self) -> list[tuple[str, int, int, str, int]]:
        """The keys of the payloads awaited."""
        return [(self.fit, self.epoch, self.serial, self.name, sender) for sender in self.senders]


class Turn(NamedTuple):
    """A request to wait before sending rows, with the number of cells of all shards: trees that grow side by side take turns."""

    n_cells: int


T = TypeVar("T")
#: A generator that yields steps, is sent their results, and returns a reply.
Program = Generator[Step, Any, Any]
#: A generator of steps that all shards take at the same time; it returns a result.
Steps = Generator[Step | Turn, Any, T]


class Mailbox:
    """Payloads that a shard has received, for the current epoch and later ones. Any thread may add some."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fit: tuple[str, int] | None = None
        self._payloads: dict[tuple[str, int, int, str, int], Payload] = {}

    def open(self, fit: str, epoch: int) -> None:
        """Begin an epoch, and drop the payloads of others."""
        with self._lock:
            self._fit = fit, epoch
            self._payloads = {key: payload for key, payload in self._payloads.items() if key[:2] == self._fit}

    def put(self, payload: Payload) -> None:
        """Store a payload, unless it belongs to an earlier epoch."""
        with self._lock:
            if self._fit is None or self._fit[0] != payload.fit or self._fit[1] <= payload.epoch:
                self._payloads[payload.key] = payload

    def take(self, step: Step) -> list[Arrays] | None:
        """Remove and return the arrays that a step awaits, in the order of its senders; return None if some are missing."""
        with self._lock:
            if any(key not in self._payloads for key in step.keys):
                return None
            return [self._payloads.pop(key).arrays for key in step.keys]

    def missing(self, step: Step) -> list[int]:
        """Return the senders whose payloads for a step are missing."""
        with self._lock:
            return [sender for sender, key in zip(step.senders, step.keys, strict=True) if key not in self._payloads]


class Grain:
    """How finely large nodes are summed: each zone in ``2**current`` parts, adapted to the previous trees.

    With finer parts, there is more to sum and to send; with coarser parts, more rows are flagged and have to be examined.
    """

    def __init__(self) -> None:
        self.current = _FIRST_GRAIN
        self._flagged = self._cells = self._trees_as_fine = 0

    def note(self, flagged: int, cells: int) -> None:
        """Count the flagged cells of the nodes of a level, and all their cells."""
        self._flagged += flagged
        self._cells += cells
        if flagged * _FAR_TOO_MUCH_FLAGGED_SHARE > cells and self.current < FOLD:
            self._refine()

    def _refine(self) -> None:
        self.current = min(FOLD, self.current + 2)
        self._trees_as_fine, self._flagged, self._cells = _TREES_AS_FINE, 0, 0

    def adapt(self) -> None:
        """Choose the grain for the next tree, by the cells counted since the last choice."""
        self._trees_as_fine -= 1
        if self._flagged * _MUCH_FLAGGED_SHARE > self._cells and self.current < FOLD:
            self._refine()
        elif self._flagged * _FLAGGED_SHARE < self._cells and self.current > 0 and self._trees_as_fine <= 0:
            self.current = max(0, self.current - 2)
        self._flagged = self._cells = 0


@dataclass(frozen=True)
class Shards:
    """What a shard knows of all shards and of the table.

    Attributes
    ----------
    plan : BoostingPlan or ForestPlan
    fit : str
    epoch : int
    shard, n_shards : int
        The number of this shard, and of all.
    n_rows, n_columns : int
        Size of the whole table.
    owner : ndarray of int64, shape (n_columns,)
        The shard that has each column (shards of columns).
    ranges : list of ndarray
        The row ranges of each shard (shards of rows).
    n_side_by_side : int
        Number of trees of a forest that grow side by side (shards of columns).
    sent_rows : int
        Largest number of rows of a node that is grown by one shard (shards of rows).
    grain : Grain
    serials : iterator of int
        Serial numbers of steps.
    """

    plan: BoostingPlan | ForestPlan
    fit: str
    epoch: int
    shard: int
    n_shards: int
    n_rows: int
    n_columns: int
    owner: NDArray[np.int64] = field(default_factory=lambda: _NONE)
    ranges: list[NDArray[np.int64]] = field(default_factory=list)
    n_side_by_side: int = 0
    sent_rows: int = 0
    grain: Grain = field(default_factory=Grain)
    serials: Iterator[int] = field(default_factory=itertools.count)

    @property
    def boosting(self) -> BoostingPlan:
        """The plan, which must be for boosting."""
        assert isinstance(self.plan, BoostingPlan)
        return self.plan

    @property
    def forest(self) -> ForestPlan:
        """The plan, which must be for a forest."""
        assert isinstance(self.plan, ForestPlan)
        return self.plan

    @property
    def everyone(self) -> range:
        """The numbers of all shards."""
        return range(self.n_shards)

    @property
    def to_first(self) -> Sequence[int]:
        """The senders that this shard awaits in a step in which all send to shard 0."""
        return () if self.shard else self.everyone

    @property
    def by_ranges(self) -> list[tuple[int, int]]:
        """For each row range, in the order of rows: its shard, and its place among the shard's ranges."""
        every = sorted((int(some[i, 0]), shard, i) for shard, some in enumerate(self.ranges) for i in range(some.shape[0]))
        return [(shard, i) for _, shard, i in every]

    def step(self, name: str, arrays: Mapping[int, Arrays], senders: Sequence[int]) -> Step:
        """Return a step with arrays for the given shards, which waits for the arrays of ``senders``."""
        about = self.fit, self.epoch, next(self.serials), name
        once = {id(some): Payload(*about, self.shard, some) for some in arrays.values()}
        return Step(*about, {shard: once[id(some)] for shard, some in arrays.items()}, senders)

    def to_all(self, name: str, arrays: Arrays) -> Step:
        """Return a step that sends the same arrays to all shards and waits for those of all."""
        return self.step(name, dict.fromkeys(self.everyone, arrays), self.everyone)

    def gather(self, name: str, own: T) -> Steps[list[T]]:
        """Send a value to all shards; return the value of each. A single shard takes no step for it."""
        if self.n_shards == 1:
            return [own]
        sent = yield self.to_all(name, cast(Arrays, (own,)))
        return [one for (one,) in sent]

    def of_one(self, name: str, shard: int, find: Callable[[], T]) -> Steps[T]:
        """Return a value that one shard computes and sends to all. A single shard takes no step for it."""
        if self.n_shards == 1:
            return find()
        sent = cast(Arrays, (find(),)) if shard == self.shard else ()
        ((found,),) = yield self.step(name, dict.fromkeys(self.everyone, sent) if sent else {}, (shard,))
        return cast(T, found)


def alone(program: Steps[T]) -> T:
    """Return the result of a program on a single shard, which takes no steps."""
    try:
        program.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    raise AssertionError("the only shard waits for another")


def by_turns(function: Callable[[int], None], numbers: Sequence[int]) -> None:
    """Call a function with each number, one after the other."""
    for number in numbers:
        function(number)


def side_by_side(
    programs: Mapping[int, Steps[Any]], most_cells: int = 0, share: Callable[[Callable[[int], None], Sequence[int]], Any] = by_turns
) -> Program:
    """Run programs side by side, each up to its next step, and so on; return their replies in order.

    Every shard runs the programs of the same numbers, except those that take no steps. Programs that are about to send rows (:class:`Turn`)
    wait, except the first, while the total would exceed ``most_cells``. ``share`` calls a function with the numbers of programs, possibly
    on several threads.
    """
    replies: dict[int, Any] = {}
    steps: dict[int, Step | Turn] = {}
    awaited: dict[int, list[Any]] = {}

    def go_on(number: int, sent: Any = None) -> None:
        try:
            steps[number] = programs[number].send(sent)
        except StopIteration as end:
            steps.pop(number, None)
            replies[number] = end.value

    share(go_on, list(programs))
    turn = 0
    while steps:
        turn, n_cells = turn + 1, 0
        for number in list(steps):
            while isinstance(step := steps.get(number), Turn) and (not n_cells or not step.n_cells or n_cells + step.n_cells <= most_cells):
                n_cells += step.n_cells
                go_on(number)
        ready = {number: step for number, step in steps.items() if isinstance(step, Step)}
        if len(ready) == 1:
            ((number, only),) = ready.items()
            go_on(number, (yield only))
        elif ready:
            joined = _joined(ready, turn)
            sent = yield joined
            came = dict(zip(joined.senders, map(_unpack_by_program, sent), strict=True))
            awaited.update({number: [came[sender][number] for sender in own.senders] for number, own in ready.items()})
            share(lambda number: go_on(number, awaited.pop(number)), list(ready))
    return [replies[number] for number in programs]


def _joined(steps: Mapping[int, Step], turn: int) -> Step:
    """Combine steps of several programs into one. Its serial number is one of theirs; its name has the turn and their names."""
    first = min(steps.values(), key=lambda step: step.serial)
    name = f"{turn}: {', '.join(sorted({step.name for step in steps.values()}))}"
    once: dict[tuple[tuple[int, int], ...], Payload] = {}
    payloads = {}
    for shard in sorted({shard for step in steps.values() for shard in step.payloads}):
        own = {number: step.payloads[shard] for number, step in steps.items() if shard in step.payloads}
        which = tuple((number, id(payload)) for number, payload in own.items())
        if which not in once:
            arrays, one = _pack_by_program({number: payload.arrays for number, payload in own.items()}), next(iter(own.values()))
            once[which] = one._replace(serial=first.serial, name=name, arrays=arrays)
        payloads[shard] = once[which]
    senders = sorted({sender for step in steps.values() for sender in step.senders})
    return first._replace(name=name, payloads=payloads, senders=senders)


def _pack_by_program(parts: Mapping[int, Arrays]) -> Arrays:
    """Pack the arrays of several programs into one payload: program numbers with their number of arrays, then the arrays.

    Examples
    --------
    >>> one, other = np.arange(2), np.ones(1)
    >>> _pack_by_program({4: (one, other), 7: (), 9: (one,)})
    (array([[4, 2],
           [7, 0],
           [9, 1]]), array([0, 1]), array([1.]), array([0, 1]))
    """
    counts = np.array([(number, len(arrays)) for number, arrays in parts.items()], np.int64)
    return (counts, *(array for arrays in parts.values() for array in arrays))


def _unpack_by_program(arrays: Arrays) -> dict[int, Arrays]:
    """Return the arrays of each program; the inverse of :func:`_pack_by_program`."""
    parts, at = {}, 1
    for number, n in arrays[0].tolist():
        parts[number] = arrays[at : at + n]
        at += n
    return parts
