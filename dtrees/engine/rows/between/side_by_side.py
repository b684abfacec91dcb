"""Programs of a shard that are carried out side by side: what they have for another shard at the same time goes in one parcel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dtrees.engine.rows.between.shards import Steps
from dtrees.engine.rows.exchange import Arrays, Parcel, Program, Step, Turn


def side_by_side(programs: Mapping[int, Steps[Any]], most_cells: int = 0) -> Program:
    """Carry out programs by turns, each up to its next step; return their replies, in their order.

    Every shard carries out the programs of the same numbers, but for those that take no steps. Of programs that are about to send rows
    (:class:`~dtrees.engine.rows.exchange.Turn`), those wait that would make it more than ``most_cells`` at a time, but not the first.
    """
    replies: dict[int, Any] = {}
    steps: dict[int, Step | Turn] = {}

    def go_on(number: int, sent: Any) -> None:
        try:
            steps[number] = programs[number].send(sent)
        except StopIteration as end:
            steps.pop(number, None)
            replies[number] = end.value

    for number in programs:
        go_on(number, None)
    turn = 0
    while steps:
        turn, n_cells = turn + 1, 0
        for number in list(steps):
            while isinstance(step := steps.get(number), Turn) and (not n_cells or not step.n_cells or n_cells + step.n_cells <= most_cells):
                n_cells += step.n_cells
                go_on(number, None)
        ready = {number: step for number, step in steps.items() if isinstance(step, Step)}
        if len(ready) == 1:
            ((number, alone),) = ready.items()
            go_on(number, (yield alone))
        elif ready:
            joined = _joined(ready, turn)
            sent = yield joined
            came = dict(zip(joined.senders, map(_taken_apart, sent), strict=True))
            for number, own in ready.items():
                go_on(number, [came[sender][number] for sender in own.senders])
    return [replies[number] for number in programs]


def _joined(steps: Mapping[int, Step], turn: int) -> Step:
    """Return the steps of programs as one. It has a serial number of theirs, and is named by its turn and their names."""
    serial = min(step.serial for step in steps.values())
    fit, epoch = next((step.fit, step.epoch) for step in steps.values())
    name = f"{turn}: {', '.join(sorted({step.name for step in steps.values()}))}"
    once: dict[tuple[tuple[int, int], ...], Parcel] = {}
    parcels = {}
    for shard in sorted({shard for step in steps.values() for shard in step.parcels}):
        own = {number: step.parcels[shard] for number, step in steps.items() if shard in step.parcels}
        which = tuple((number, id(parcel)) for number, parcel in own.items())
        if which not in once:
            sender = next(parcel.sender for parcel in own.values())
            once[which] = Parcel(fit, epoch, serial, name, sender, _put_together({number: parcel.arrays for number, parcel in own.items()}))
        parcels[shard] = once[which]
    return Step(fit, epoch, serial, name, parcels, sorted({sender for step in steps.values() for sender in step.senders}))


def _put_together(parts: Mapping[int, Arrays]) -> Arrays:
    """Return the arrays of some programs as those of one parcel: their numbers and how many arrays each has, then these.

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
