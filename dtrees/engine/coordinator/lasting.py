"""What outlasts the loss of shards, whatever is grown and whatever shards have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from dtrees.engine.protocol.executor import ShardsLost

T = TypeVar("T")


class Lasting(ABC):
    """A fit that goes on when shards are lost: they are replaced, all are brought to a state to go on from, and it is tried again."""

    def _lasting(self, act: Callable[[], T]) -> T:
        """Do something that leaves no trace in the fit unless it ends well, as often as it takes."""
        while True:
            try:
                return act()
            except ShardsLost:
                self._recover()

    def _recover(self) -> None:
        """Bring all shards to the state after the last finished tree, as often as it takes."""
        while True:
            try:
                return self._restore()
            except ShardsLost:
                continue

    @abstractmethod
    def _restore(self) -> None:
        """Replace shards that are gone, or misplaced, and bring all to the state after the last finished tree."""
