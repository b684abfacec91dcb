"""What shards tell one another while they carry out a message together, and how: step by step, trees side by side.

Shards send each other sums and rows, or which rows splits send left: too much to go by way of the coordinator, and too often to take turns
with it. How a shard carries out a message is a *program*: at each :class:`Step` it has payloads for other shards, and waits for those that
it is sent, until it comes to its reply. All that take part run their programs at the same time. That the payloads of a step have come is
known from the steps of their receivers, so nobody acknowledges them.

All shards know the same of a tree, so they decide the same: each takes all of its steps (:mod:`dtrees.engine.shard.tree`,
:mod:`dtrees.engine.rows.tree`), does what is of its own columns or rows, and tells all others what came of that. Decisions take no way by
the coordinator, and are made while nobody waits for it.
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

#: More cells are flagged than one in so many, or less: finer, or coarser parts are tried. Finer ones are kept for so many trees then.
_MUCH_FLAGGED_SHARE, _FLAGGED_SHARE, _TREES_AS_FINE = 100, 1000, 20
_FIRST_GRAIN = 1
#: More cells of a level are flagged than one in so many: the next one is summed by finer parts already. The first tree of noise takes
#: 1.9 instead of 2.9 s with it, loading included (1M x 28, two shards).
_FAR_TOO_MUCH_FLAGGED_SHARE = 16


class Payload(NamedTuple):
    """Arrays from one shard to another, of a step of the exchange with a serial number in an epoch of a fit."""

    fit: str
    epoch: int
    serial: int
    name: str
    sender: int
    arrays: Arrays

    @property
    def key(self) -> tuple[str, int, int, str, int]:
        """All but the arrays."""
        return self[:5]


class Step(NamedTuple):
    """A step of a program: ``payloads`` to shards by their numbers, and the ``senders`` of whom others are awaited.

    What comes of it is the arrays of each sender, of whom there may be none. But what a shard is sent in an exchange it awaits in that
    exchange, as nobody takes it in for a shard that has replied. All shards that take part in an exchange take the same steps. Where
    several programs take steps together, the name is made of theirs (:func:`side_by_side`).
    """

    fit: str
    epoch: int
    serial: int
    name: str
    payloads: Mapping[int, Payload]
    senders: Sequence[int]

    @property
    def keys(self) -> list[tuple[str, int, int, str, int]]:
        """Those of the payloads awaited."""
        return [(self.fit, self.epoch, self.serial, self.name, sender) for sender in self.senders]


class Turn(NamedTuple):
    """Before it sends rows, of so many cells from all shards, a tree waits for its turn among those that grow beside it."""

    n_cells: int


T = TypeVar("T")
#: Yields steps, is sent what came of them, and returns a reply.
Program = Generator[Step, Any, Any]
#: Steps that all shards take at the same time, which return something in the end.
Steps = Generator[Step | Turn, Any, T]


class Mailbox:
    """What other shards have sent to one: payloads of the fit and the epoch under way, and of later ones; any thread may put some in."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fit: tuple[str, int] | None = None
        self._payloads: dict[tuple[str, int, int, str, int], Payload] = {}

    def open(self, fit: str, epoch: int) -> None:
        """Begin an epoch: payloads of others are dropped."""
        with self._lock:
            self._fit = fit, epoch
            self._payloads = {key: payload for key, payload in self._payloads.items() if key[:2] == self._fit}

    def put(self, payload: Payload) -> None:
        """Keep a payload; one of an earlier epoch is dropped."""
        with self._lock:
            if self._fit is None or self._fit[0] != payload.fit or self._fit[1] <= payload.epoch:
                self._payloads[payload.key] = payload

    def take(self, step: Step) -> list[Arrays] | None:
        """Take what a step awaits, in the order of its senders; return None if something is missing."""
        keys = step.keys
        with self._lock:
            payloads = self._payloads
            for key in keys:
                if key not in payloads:
                    return None
            return [payloads.pop(key).arrays for key in keys]

    def missing(self, step: Step) -> list[int]:
        """Return of whom nothing has come that a step awaits."""
        with self._lock:
            return [sender for sender, key in zip(step.senders, step.keys, strict=True) if key not in self._payloads]


class Grain:
    """How finely large nodes are summed: by parts of zones, ``2**current`` of each, as fine as the last trees have wanted.

    Finer parts are more to sum and to send; by coarser ones more rows are flagged, and have to be looked at more closely.
    """

    def __init__(self) -> None:
        self.current = _FIRST_GRAIN
        self._flagged = self._cells = self._trees_as_fine = 0

    def note(self, flagged: int, cells: int) -> None:
        """Note how many cells of a level's nodes were flagged, of how many."""
        self._flagged += flagged
        self._cells += cells
        if flagged * _FAR_TOO_MUCH_FLAGGED_SHARE > cells and self.current < FOLD:
            self._refine()
            self._flagged = self._cells = 0

    def _refine(self) -> None:
        self.current = min(FOLD, self.current + 2)
        self._trees_as_fine = _TREES_AS_FINE

    def adapt(self) -> None:
        """Choose for the next tree, by the cells noted since the last one."""
        flagged, cells = self._flagged, self._cells
        self._flagged = self._cells = 0
        self._trees_as_fine -= 1
        if flagged * _MUCH_FLAGGED_SHARE > cells and self.current < FOLD:
            self._refine()
        elif flagged * _FLAGGED_SHARE < cells and self.current > 0 and self._trees_as_fine <= 0:
            self.current = max(0, self.current - 2)


@dataclass(frozen=True)
class Shards:
    """What a shard knows of all.

    Attributes
    ----------
    plan : BoostingPlan or ForestPlan
    fit : str
    epoch : int
    shard, n_shards : int
        Which of how many this is.
    n_rows, n_columns : int
        Of the whole table.
    owner : ndarray of int64, shape (n_columns,)
        The shard that has each column, where shards have columns.
    ranges : list of ndarray
        Of each shard, where shards have rows.
    n_slots : int
        Trees of a forest to grow side by side, where shards have columns.
    sent_rows : int
        Up to how many rows a node is grown by one shard, where shards have rows.
    grain : Grain
    serials : iterator of int
        Numbers for steps.
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
    n_slots: int = 0
    sent_rows: int = 0
    grain: Grain = field(default_factory=Grain)
    serials: Iterator[int] = field(default_factory=itertools.count)

    @property
    def boosting(self) -> BoostingPlan:
        """The plan, of boosting."""
        assert isinstance(self.plan, BoostingPlan)
        return self.plan

    @property
    def forest(self) -> ForestPlan:
        """The plan, of a forest."""
        assert isinstance(self.plan, ForestPlan)
        return self.plan

    @property
    def everyone(self) -> range:
        """The numbers of all shards."""
        return range(self.n_shards)

    @property
    def to_first(self) -> Sequence[int]:
        """Whom this shard awaits in a step where all send shard 0 something."""
        return () if self.shard else self.everyone

    @property
    def by_ranges(self) -> list[tuple[int, int]]:
        """The shard, and the place there, of each range, in the order of rows."""
        every = sorted((int(some[i, 0]), shard, i) for shard, some in enumerate(self.ranges) for i in range(some.shape[0]))
        return [(shard, i) for _, shard, i in every]

    def step(self, name: str, arrays: Mapping[int, Arrays], senders: Sequence[int]) -> Step:
        """Return a step with arrays for shards by their numbers, which waits for those of senders."""
        once: dict[int, Payload] = {}
        payloads, serial = {}, next(self.serials)
        for shard, some in arrays.items():
            if id(some) not in once:
                once[id(some)] = Payload(self.fit, self.epoch, serial, name, self.shard, some)
            payloads[shard] = once[id(some)]
        return Step(self.fit, self.epoch, serial, name, payloads, senders)

    def to_all(self, name: str, arrays: Arrays) -> Step:
        """Return a step with the same arrays for all shards, which waits for those of all."""
        return self.step(name, dict.fromkeys(self.everyone, arrays), self.everyone)

    def gather(self, name: str, own: T) -> Steps[list[T]]:
        """Tell all shards something; return what each has sent. The only shard takes no step for it."""
        if self.n_shards == 1:
            return [own]
        sent = yield self.to_all(name, cast(Arrays, (own,)))
        return [one for (one,) in sent]

    def of_one(self, name: str, shard: int, find: Callable[[], T]) -> Steps[T]:
        """Return what one shard finds, which tells all. The only shard takes no step for it."""
        if self.n_shards == 1:
            return find()
        sent = cast(Arrays, (find(),)) if shard == self.shard else ()
        ((found,),) = yield self.step(name, dict.fromkeys(self.everyone, sent) if sent else {}, (shard,))
        return cast(T, found)


def alone(program: Steps[T]) -> T:
    """Return what comes of a program of the only shard, which has nobody to wait for."""
    try:
        program.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    raise AssertionError("the only shard waits for another")


def by_turns(function: Callable[[int], None], numbers: Sequence[int]) -> None:
    """Call a function with some numbers, one after the other."""
    for number in numbers:
        function(number)


def side_by_side(
    programs: Mapping[int, Steps[Any]], most_cells: int = 0, share: Callable[[Callable[[int], None], Sequence[int]], Any] = by_turns
) -> Program:
    """Carry out programs, each up to its next step, and so on; return their replies, in their order.

    Every shard carries out the programs of the same numbers, but for those that take no steps. Of programs that are about to send rows
    (:class:`Turn`), those wait that would make it more than ``most_cells`` at a time, but not the first. ``share`` calls a function with
    the numbers of programs, perhaps by several threads.
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
            came = dict(zip(joined.senders, map(_taken_apart, sent), strict=True))
            awaited.update({number: [came[sender][number] for sender in own.senders] for number, own in ready.items()})
            share(lambda number: go_on(number, awaited.pop(number)), list(ready))
    return [replies[number] for number in programs]


def _joined(steps: Mapping[int, Step], turn: int) -> Step:
    """Return the steps of programs as one. It has a serial number of theirs, and is named by its turn and their names."""
    serial = min(step.serial for step in steps.values())
    fit, epoch = next((step.fit, step.epoch) for step in steps.values())
    name = f"{turn}: {', '.join(sorted({step.name for step in steps.values()}))}"
    once: dict[tuple[tuple[int, int], ...], Payload] = {}
    payloads = {}
    for shard in sorted({shard for step in steps.values() for shard in step.payloads}):
        own = {number: step.payloads[shard] for number, step in steps.items() if shard in step.payloads}
        which = tuple((number, id(payload)) for number, payload in own.items())
        if which not in once:
            sender = next(payload.sender for payload in own.values())
            once[which] = Payload(
                fit, epoch, serial, name, sender, _put_together({number: payload.arrays for number, payload in own.items()})
            )
        payloads[shard] = once[which]
    return Step(fit, epoch, serial, name, payloads, sorted({sender for step in steps.values() for sender in step.senders}))


def _put_together(parts: Mapping[int, Arrays]) -> Arrays:
    """Return the arrays of some programs as those of one payload: their numbers and how many arrays each has, then these.

    Examples
    --------
    >>> one, other = np.arange(2), np.ones(1)
    >>> _put_together({4: (one, other), 7: (), 9: (one,)})
    (array([[4, 2],
           [7, 0],
           [9, 1]]), array([0, 1]), array([1.]), array([0, 1]))
    """
    counts = np.array([(number, len(arrays)) for number, arrays in parts.items()], np.int64)
    return (counts, *(array for arrays in parts.values() for array in arrays))


def _taken_apart(arrays: Arrays) -> dict[int, Arrays]:
    """Return the arrays of each program."""
    parts, at = {}, 1
    for number, n in arrays[0].tolist():
        parts[number] = arrays[at : at + n]
        at += n
    return parts
