"""Parcels that wait for a shard to come to the step that they are for."""

from __future__ import annotations

import numpy as np
import pytest

from dtrees.engine.rows.exchange import Mailbox, Parcel, Step


def parcel(sender: int, *, fit: str = "fit", epoch: int = 2, serial: int = 5, name: str = "sums") -> Parcel:
    return Parcel(fit, epoch, serial, name, sender, (np.array([sender]),))


SUMS = Step("fit", 2, 5, "sums", {}, range(2))


@pytest.mark.parametrize("change", [{"epoch": 1}, {"fit": "another"}, {"serial": 4}, {"name": "bars"}])
def test_only_what_is_meant_is_taken(change: dict[str, object]) -> None:
    mailbox = Mailbox()
    mailbox.open("fit", 2)
    mailbox.put(parcel(1))
    mailbox.put(parcel(0, **change))  # type: ignore[arg-type]
    assert mailbox.take(SUMS) is None
    assert mailbox.missing(SUMS) == [0]
    mailbox.put(parcel(0))
    assert [int(array[0]) for (array,) in mailbox.take(SUMS) or []] == [0, 1]
    assert mailbox.take(SUMS) is None  # each is taken once


def test_an_epoch_may_begin_elsewhere_before_it_does_here() -> None:
    mailbox = Mailbox()
    mailbox.open("fit", 1)
    mailbox.put(parcel(0, epoch=1))
    mailbox.put(parcel(0))
    mailbox.open("fit", 2)
    mailbox.put(parcel(1, epoch=1))
    assert mailbox.missing(SUMS) == [1]
    assert mailbox.missing(SUMS._replace(epoch=1)) == [0, 1]
