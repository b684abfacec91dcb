"""Bounds of zones, compared with every split of the rows in these zones."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.split.compile.kernels import kernel
from dtrees.split.criteria import parts
from dtrees.split.criteria.constraints import Clipped, InOrder, begin_column, make_constraints
from dtrees.split.criteria.statistics import Moments
from dtrees.split.zones.bounds import best_edge, flag_zones
from tests import naive
from tests.examples import examples
from tests.naive import ENTROPY, GINI, NEWTON, NEWTON_L1, POISSON, SQUARED_ERROR
from tests.split.nodes import package_limits

Row = tuple[int, int]


def zone_arrays(zones: list[list[Row]], centre: int = 0) -> NDArray[np.int64]:
    """Return the sums of zones of rows (g, h), quantity by quantity."""
    sums = np.zeros((7, len(zones) + 1), np.int64)
    g = h = n = 0
    for z, rows in enumerate(zones):
        sums[:3, z] = g, h, n
        g, h, n = g + sum(row[0] for row in rows), h + sum(row[1] for row in rows), n + len(rows)
        sums[3:6, z] = g, h, n
        sums[6, z] = sum(abs(row[0] - centre * row[1]) for row in rows)
    return sums


def score(limits: naive.SplitLimits, left: list[Row], right: list[Row]) -> float:
    """The score of a split, -1.0 if it is not allowed."""
    if min(len(left), len(right)) < limits.min_samples:
        return -1.0
    (x, a), (y, b) = ([sum(row[k] for row in side) for k in range(2)] for side in (left, right))
    if min(a, b) < limits.min_weight:
        return -1.0
    criterion = naive.kernel_value(limits)
    return float(parts.score(criterion, float(x), float(a), float(y), float(b)))


@kernel
def flag_from_python(limits, sums, n_zones, missing, node, bar, centre, slope, numbers, marks):  # type: ignore[no-untyped-def]
    return flag_zones(limits, sums, n_zones, missing, node, bar, centre, slope, numbers, marks)


def sides(zones: list[list[Row]], missing: list[Row], n_left: int) -> list[tuple[list[Row], list[Row]]]:
    """Return the rows left and right of a cut after ``n_left`` rows, with missing ones on either side."""
    rows = list(itertools.chain.from_iterable(zones))
    left, right = rows[:n_left], rows[n_left:]
    return [(left, right + missing)] + ([(left + missing, right)] if missing else [])


def flagged(
    limits: Any, sums: NDArray[np.int64], n_zones: int, missing: Any, node: Any, bar: float, centre: int, slope: float
) -> NDArray[np.bool_]:
    """Return which zones are flagged; check that their sums were moved to the front, and nothing else changed."""
    moved, before, marks = sums.copy(), np.arange(100, 100 + sums.shape[1]), np.full(n_zones + 16, 7, np.uint8)
    numbers = before.copy()
    m = flag_from_python(limits, moved, n_zones, missing, node, bar, centre, slope, numbers, marks)
    found = numbers[:m] - 100
    assert (np.diff(found) > 0).all()
    assert np.array_equal(moved[:, :m], sums[:, found])
    assert np.array_equal(moved[:, n_zones:], sums[:, n_zones:])
    assert np.array_equal(numbers[n_zones:], before[n_zones:])
    assert (marks[(n_zones + 7) // 8 * 8 :] == 7).all()
    flags = np.zeros(n_zones, np.bool_)
    flags[found] = True
    return flags


ROWS = st.lists(st.tuples(st.integers(-1000, 1000), st.integers(1, 50)), max_size=5)


@pytest.mark.slow  # kernels of its own; large nodes are compared with full scans in every run (test_column.py)
@pytest.mark.parametrize("criterion", [SQUARED_ERROR, POISSON, GINI, ENTROPY, NEWTON, NEWTON_L1])
@given(
    zones=st.lists(ROWS, max_size=20),
    missing=ROWS,
    penalty=st.sampled_from([0.0, 3.0]),
    l1=st.sampled_from([0.0, 1.0, 500.0]),
    min_samples=st.sampled_from([1, 2]),
    min_weight=st.sampled_from([0, 40]),
    shift=st.sampled_from([0, 10, 40]),
    slope=st.booleans(),
    centre=st.one_of(st.just(0), st.integers(-1000, 1000)),
    ballast=st.one_of(st.none(), st.tuples(st.integers(-1000, 1000), st.sampled_from([2**30, 2**50]), st.booleans())),
)
@examples(100)
def test_edges_and_flags(
    criterion: str,
    zones: list[list[Row]],
    missing: list[Row],
    penalty: float,
    l1: float,
    min_samples: int,
    min_weight: int,
    shift: int,
    slope: bool,
    centre: int,
    ballast: tuple[int, int, bool] | None,
) -> None:
    in_classes = criterion in (GINI, ENTROPY)  # g is the weight of a class there
    amounts = criterion == POISSON  # not negative
    if amounts:
        zones, missing = [[(max(g, 0), h) for g, h in rows] for rows in zones], [(max(g, 0), h) for g, h in missing]
    zones = [[((h if g > 0 else 0) if in_classes else g << shift, h) for g, h in rows] for rows in [*zones, missing]]
    missing = zones.pop()
    if ballast is not None and zones and not in_classes and shift == 0:  # a row that outweighs all others
        share = abs(ballast[0]) if amounts else ballast[0]
        zones[0 if ballast[2] else -1].append((share * ballast[1], ballast[1]))
        centre = 0
    limits = naive.SplitLimits(
        criterion,
        penalty=penalty if criterion in (NEWTON, NEWTON_L1) else 0.0,
        min_samples=min_samples,
        min_weight=min_weight,
        l1=l1 * 2.0**shift,
    )
    every = [row for rows in [*zones, missing] for row in rows]
    if not every or (criterion == ENTROPY and len({g > 0 for g, _ in every}) == 1):
        return  # nodes of one class are leaves, and entropy is 0
    if amounts and not any(g for g, _ in every):
        return
    centre = abs(centre) << shift if amounts else centre << shift if criterion == SQUARED_ERROR else 0
    steepest = max(abs(g - centre * h) / h for g, h in every) * (1 + 2**-44) if slope else math.inf
    given_limits = package_limits(limits)
    node, absent = totals(every), totals(missing)
    sums, n_zones = zone_arrays(zones, centre), len(zones)
    starts = [int(n) for n in sums[2, :n_zones]]
    wanted = max((score(limits, *split) for n in starts for split in sides(zones, missing, n)), default=-1.0)
    edge = best_edge(given_limits, sums, n_zones, absent, node, -1.0, np.empty(n_zones + 1))
    assert edge == max(wanted, -1.0)
    if edge >= 0.0:
        assert best_edge(given_limits, sums, n_zones, absent, node, edge, np.empty(n_zones + 1)) == -1.0
        assert best_edge(given_limits, sums, n_zones, absent, node, np.nextafter(edge, -1), np.empty(n_zones + 1)) == edge
    for bar in {np.nextafter(edge, -np.inf) if edge >= 0.0 else 0.0, edge / 2 if edge > 0.0 else 0.0}:
        flags = flagged(given_limits, sums, n_zones, absent, node, bar, centre, steepest)
        for z, rows in enumerate(zones):
            best = max(
                (score(limits, *split) for k in range(1, len(rows) + 1) for split in sides(zones, missing, starts[z] + k)), default=-1.0
            )
            assert flags[z] or best <= bar
            assert rows or not flags[z]


_BOUNDS = st.sampled_from([-math.inf, -60.0, -5.0, -0.25, 0.0, 2.0, 30.0, math.inf])


@pytest.mark.slow  # kernels of its own
@pytest.mark.parametrize("criterion", [NEWTON, NEWTON_L1, SQUARED_ERROR, POISSON])
@given(
    zones=st.lists(ROWS, min_size=1, max_size=12),
    missing=ROWS,
    penalty=st.sampled_from([0.0, 3.0]),
    l1=st.sampled_from([1.0, 500.0]),
    bounds=st.tuples(_BOUNDS, _BOUNDS),
    sign=st.sampled_from([-1, 0, 1]),
    shift=st.sampled_from([0, 10, 40]),
    slope=st.booleans(),
    centre=st.integers(-1000, 1000),
)
@examples(200)
def test_flags_within_bounds(
    criterion: str,
    zones: list[list[Row]],
    missing: list[Row],
    penalty: float,
    l1: float,
    bounds: tuple[float, float],
    sign: int,
    shift: int,
    slope: bool,
    centre: int,
) -> None:
    kind = Clipped if criterion in (NEWTON, NEWTON_L1) else InOrder
    least = 0 if criterion == POISSON else -math.inf
    zones = [[(int(max(g << shift, least)), h) for g, h in rows] for rows in [*zones, missing]]
    missing, centre = zones.pop(), 0 if kind is Clipped else int(max(centre << shift, least))
    every = [row for rows in [*zones, missing] for row in rows]
    if not any(g for g, _ in every):
        return
    plain = package_limits(naive.SplitLimits(criterion, penalty=penalty if kind is Clipped else 0.0, l1=l1 * 2.0**shift))
    limits = plain._replace(criterion=kind(plain.criterion, make_constraints((sign,), (), 0)))
    node, absent = totals(every), totals(missing)
    if kind is InOrder:  # hardly any splits are within bounds, which zones ignore
        bounds = (-math.inf, math.inf)
    words = np.array([*(x * 2.0**shift for x in sorted(bounds)), 0.0]).view(np.int64)
    assert begin_column(limits.criterion, np.concatenate([[node.g, node.h], words]), 0)

    def best_score(counts: range) -> float:
        found = -1.0
        for n in counts:
            for left, right in sides(zones, missing, n):
                if left and right:
                    (x, a), (y, b) = ([float(sum(row[k] for row in side)) for k in range(2)] for side in (left, right))
                    found = max(found, float(parts.score(limits.criterion, x, a, y, b)))
        return found

    sums, n_zones = zone_arrays(zones, centre), len(zones)
    steepest = max(abs(g - centre * h) / h for g, h in every) * (1 + 2**-44) if slope else math.inf
    top = best_score(range(1, len(every) + 1))
    for bar in {np.nextafter(top, -np.inf) if top >= 0.0 else 0.0, top / 2 if top > 0.0 else 0.0, -1.0}:
        flags = flagged(limits, sums, n_zones, absent, node, bar, centre, steepest)
        for z, rows in enumerate(zones):
            assert flags[z] or best_score(range(int(sums[2, z]) + 1, int(sums[5, z]) + 1)) <= bar
            assert rows or not flags[z]


def totals(rows: list[Row]) -> Any:
    return Moments(np.int64(sum(g for g, _ in rows)), np.int64(sum(h for _, h in rows)), np.int64(len(rows)))


@pytest.mark.slow
@pytest.mark.parametrize("criterion", [SQUARED_ERROR, NEWTON, NEWTON_L1])
def test_most_zones_are_left_out(criterion: str) -> None:
    """A bound that never prunes would be safe, but useless."""
    rng = np.random.default_rng(0)
    zones = [[(int(g), 1) for g in rng.normal(1000.0 if z < 50 else -1000.0, 300.0, 10)] for z in range(100)]
    every = [row for rows in zones for row in rows]
    limits = package_limits(
        naive.SplitLimits(criterion, penalty=0.0 if criterion == SQUARED_ERROR else 1.0, l1=500.0), max(abs(g) for g, _ in every) + 1.0
    )
    sums, none = zone_arrays(zones), totals([])
    edge = best_edge(limits, sums, 100, none, totals(every), -1.0, np.empty(100))
    flags = flagged(limits, sums, 100, none, totals(every), np.nextafter(edge, -1), 0, limits.slope)
    assert np.flatnonzero(flags).min() >= 48
    assert np.flatnonzero(flags).max() <= 51
    assert flags[49]


@pytest.mark.slow
@pytest.mark.parametrize("criterion", [SQUARED_ERROR, NEWTON, NEWTON_L1])
def test_zones_out_of_order_are_left_out(criterion: str) -> None:
    """If sides cannot be in the order that all cuts have, even without a split in any other column."""
    zones = [[(g, 1) for g in range(z * 10 - 500, z * 10 - 490)] for z in range(100)]
    every, none = [row for rows in zones for row in rows], totals([])
    plain = package_limits(naive.SplitLimits(criterion, penalty=0.0 if criterion == SQUARED_ERROR else 1.0, l1=10.0), 1000.0)
    for sign, n_wanted in ((1, 100), (-1, 4)):
        kind, sign = (InOrder, sign) if criterion == SQUARED_ERROR else (Clipped, -sign)
        limits = plain._replace(criterion=kind(plain.criterion, make_constraints((sign,), (), 0)))
        words = np.array([-math.inf, math.inf, 0.0]).view(np.int64)
        begin_column(limits.criterion, np.concatenate([[totals(every).g, len(every)], words]), 0)
        flags = flagged(limits, zone_arrays(zones), 100, none, totals(every), 0.0, 0, limits.slope)
        assert flags.sum() == 100 if n_wanted == 100 else flags.sum() <= n_wanted


@pytest.mark.slow
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("weight", [1, 2**10, 2**30])
@pytest.mark.parametrize("criterion", [NEWTON, NEWTON_L1])
def test_few_rows_beside_very_many(criterion: str, weight: int, mirrored: bool) -> None:
    """The sums beyond the best cut are tiny compared with the node's, and may be rounded up."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        # Many rows with the same target, few of these in a zone of their own, and few with another target.
        n, few = int(rng.integers(10**3, 10**6)), int(rng.integers(1, 6))
        g = int(rng.integers(2**39, 2**40)) if weight == 1 else int(rng.integers(1, 2**10))
        zones = [[(n * g * weight, n * weight)], [(few * g, few)], [(-3 * g, 3)]]
        zones = zones[::-1] if mirrored else zones
        every = [row for rows in zones for row in rows]
        limits = package_limits(naive.SplitLimits(criterion, l1=float(g)), g * (1 + 2**-44))
        sums = zone_arrays(zones)
        edge = best_edge(limits, sums, 3, totals([]), totals(every), -1.0, np.empty(3))
        flags = flagged(limits, sums, 3, totals([]), totals(every), np.nextafter(edge, -1), 0, limits.slope)
        for z, cut in [(1, 2), (0, 1)]:  # the zone below the best cut
            if edge == score(naive.SplitLimits(criterion, l1=float(g)), every[:cut], every[cut:]):
                assert flags[z]
                break
        else:
            raise AssertionError
