"""How many shards send one another parcels though each talks to few others: in two hops over a grid.

Shards are laid out in rows of about as many as there are rows. A parcel goes along the row of its sender to a *relay* in the column of its
receiver, and down that column. Each relay puts what it was sent for one receiver in one parcel, and adds up sums. So with ``n`` shards,
each sends to about ``2 * sqrt(n)`` others, and receives from as many. What programs see of it is nothing.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from dtrees.engine.rows.between.packed import pack_sum
from dtrees.engine.rows.exchange import Arrays, Parcel, Program, Step

#: Up to so many shards, each sends to each: two hops take twice as long where messages are short.
MOST_DIRECT = 16

#: Of a sender, to whom, and what.
_Bundle = list[tuple[int, list[int], Arrays]]


class Grid(NamedTuple):
    """Where a shard stands among all.

    Attributes
    ----------
    number : int
        Of the shard.
    column : tuple of int
        The shards of its column: each is a relay for the others.
    relays : tuple of int
        For each column, the relay that its own parcels go by.
    sources : tuple of int
        The shards that it is a relay of.
    """

    number: int
    column: tuple[int, ...]
    relays: tuple[int, ...]
    sources: tuple[int, ...]


def grid_width(n_shards: int) -> int:
    """Return how many shards are in a row of the square that they are laid out in.

    Examples
    --------
    >>> grid_width(25), grid_width(26)
    (5, 6)
    """
    return math.isqrt(n_shards - 1) + 1


def grid_of(n_shards: int, number: int) -> Grid | None:
    """Return where a shard stands, or None if there are so few that each sends to each.

    Examples
    --------
    >>> grid_of(18, 0)
    Grid(number=0, column=(0, 5, 10, 15), relays=(0, 1, 2, 3, 4), sources=(0, 1, 2, 3, 4))
    """
    if n_shards <= MOST_DIRECT:
        return None
    width = grid_width(n_shards)
    n_whole = n_shards // width  # rows

    def relay(shard: int, column: int) -> int:
        one = shard // width * width + column
        # The last row may be too short: rows before it are relays for it, by turns.
        return one if one < n_shards else shard % width % n_whole * width + column

    own = number % width
    return Grid(
        number,
        tuple(range(own, n_shards, width)),
        tuple(relay(number, column) for column in range(width)),
        tuple(shard for shard in range(n_shards) if relay(shard, own) == number),
    )


def relayed(program: Program, grid: Grid) -> Program:
    """Carry out a program whose parcels go by relays."""
    sent: list[Arrays] | None = None
    while True:
        try:
            step = program.send(sent)
        except StopIteration as end:
            return end.value
        sent = yield from _carried(step, grid)


def added(sent: Sequence[Arrays]) -> Arrays | None:
    """Return the sums of several shards added up, packed if theirs are; None where they came with other arrays.

    Examples
    --------
    >>> import numpy as np
    >>> added([(np.array([1, 2]),), (np.array([3, 4]),)])
    (array([4, 6]),)
    """
    if len(sent[0]) > 1 or len(sent) == 1:
        return sent[0] if len(sent) == 1 else None
    return (pack_sum([sums for (sums,) in sent]),)


def _carried(step: Step, grid: Grid) -> Generator[Step, Any, list[Arrays]]:
    """Carry the parcels of a step; return what has come for its program."""
    width = len(grid.relays)
    to_relays: list[_Bundle] = [[] for _ in grid.relays]
    receivers: dict[int, tuple[Parcel, list[int]]] = {}
    for receiver, parcel in step.parcels.items():
        receivers.setdefault(id(parcel), (parcel, []))[1].append(receiver)
    for parcel, some in receivers.values():
        for column in {receiver % width for receiver in some}:
            to_relays[column].append((grid.number, [receiver for receiver in some if receiver % width == column], parcel.arrays))
    parcels = {relay: _parcel(step, grid, step.name, bundle) for relay, bundle in zip(grid.relays, to_relays, strict=True)}
    came = yield step._replace(parcels=parcels, senders=grid.sources)

    bundle = [one for (some,) in came for one in some]
    once: dict[tuple[int, ...], Parcel] = {}
    parcels = {}
    for receiver in grid.column:
        own = [(sender, arrays) for sender, some, arrays in bundle if receiver in some]
        which = tuple(id(arrays) for _, arrays in own)
        if which not in once:
            joined = None if step.join is None or not own else step.join([arrays for _, arrays in own])
            if joined is not None:
                own = [(grid.number, joined)]
            once[which] = _parcel(step, grid, f"{step.name} on", own)
        parcels[receiver] = once[which]
    came = yield step._replace(name=f"{step.name} on", parcels=parcels, senders=grid.column)

    found = dict(one for (some,) in came for one in some)
    return [found[sender] for sender in (step.senders if step.join is None else sorted(found))]


def _parcel(step: Step, grid: Grid, name: str, bundle: Any) -> Parcel:
    return Parcel(step.fit, step.epoch, step.serial, name, grid.number, (bundle,))
