"""Timing of contenders in turns."""

from __future__ import annotations

import ctypes
import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from benchmarks.results import Measure

#: Pools of OpenMP threads spin for a while after their work (Intel's and LLVM's for 0.2 s), which would slow down the next contender.
PAUSE = 0.3
#: Shorter work is called several times, for at least this number of seconds in total.
_SHORTEST = 0.2
#: A contender that has taken this many seconds is not timed again.
LONG = 20.0


def interleave(
    contenders: Mapping[str, Callable[[], Any]],
    repeats: int,
    *,
    pause: float = PAUSE,
    shortest: float = _SHORTEST,
    long: float = LONG,
) -> dict[str, Measure]:
    """Time each contender ``repeats`` times, in turns, after a warm-up by the caller.

    Parameters
    ----------
    contenders : mapping of str to callable
    repeats : int
    pause : float
        Seconds of pause before each turn.
    shortest : float
        Minimum seconds of a turn: short work is called several times, and its time divided.
    long : float
        Seconds after which a contender has no further turn.
    """
    calls = dict.fromkeys(contenders, 1)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, contender in contenders.items():
            taken = calls[name] * sum(seconds[name])
            if taken > long:
                continue
            once = time_calls(contender, calls[name], pause)
            if calls[name] == 1 and once < shortest / 2:  # the first turn determines the number of calls
                calls[name] = math.ceil(shortest / max(once, 1e-7))
                once = time_calls(contender, calls[name], 0.0)
            seconds[name].append(once)
    return {name: Measure(min(times), (max(times) - min(times)) / 2, len(times)) for name, times in seconds.items()}


def time_calls(contender: Callable[[], Any], calls: int, pause: float) -> float:
    """Return the mean seconds of a number of calls."""
    tidy_up()
    time.sleep(pause)
    began = time.perf_counter()
    for _ in range(calls):
        contender()
    return (time.perf_counter() - began) / calls


def tidy_up() -> None:
    """Consolidate freed memory, and return it to the system if possible.

    Otherwise the next contender pays for a freed model of millions of small chunks when it allocates memory: 2 s after a forest of YDF.
    """
    gc.collect()
    with suppress(AttributeError, OSError, TypeError):  # only glibc has this function
        ctypes.CDLL(None).malloc_trim(0)


def summary(times: Sequence[float], unit: str = "s") -> Measure:
    """Return the median and spread of measurements."""
    return Measure(statistics.median(times), (max(times) - min(times)) / 2, len(times), unit)
