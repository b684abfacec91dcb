"""A criterion added in one file works with every search, executor and estimator, and criteria that lack a part are refused."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core.errors import TypingError
from numpy.typing import NDArray

import dtrees
from dtrees.engine.plan.plans import ForestPlan
from dtrees.split.criteria import criterion as registry
from dtrees.split.criteria import parts
from dtrees.split.criteria.criterion import Criterion, criterion_named, register
from tests import toy_criterion
from tests.engine.by_the_book import check_forest, forests
from tests.engine.shards import all_equal, grow_here, grow_sharded, rules, wild_table, wild_target
from tests.examples import THOROUGH, examples
from tests.slow import thorough_for
from tests.split.nodes import best_of, expected, same, search_of
from tests.split.strategies import Task, criteria_by_sums, tasks

RANDOM = [dtrees.ExtraTreeRegressor, dtrees.ExtraTreesRegressor]
NAME = toy_criterion.MeanDifference.name


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """The toy criterion is registered for these tests only."""
    register(toy_criterion.MeanDifference())
    yield
    registry._REGISTRY.pop(NAME)


def test_whatever_is_registered_is_tested() -> None:
    assert NAME in criteria_by_sums()


@pytest.mark.slow  # searches one node by kernels that slow tests compile anyway
@pytest.mark.parametrize("random", thorough_for({True}, [False, True]))
@given(data=st.data())
@examples(100)
def test_one_node(random: bool, data: st.DataObject) -> None:
    task: Task = data.draw(tasks(random=random, criteria=(NAME,)))
    assert same(best_of(search_of(task)), expected(task))


@pytest.mark.slow  # compiles all kernels that grow trees for the criterion
@given(data=st.data())
@examples(60)
def test_trees_here_and_over_shards(data: st.DataObject) -> None:
    check_forest(*data.draw(forests(NAME, (1,), random=THOROUGH)))  # few kernels


@pytest.mark.thorough
def test_a_large_table() -> None:
    """Without a bound, columns are scanned completely; large nodes are searched, with the same result by several threads."""
    table = wild_table(9000, 1)
    plan = ForestPlan(rules(NAME, len(table), max_depth=5, min_samples_leaf=200), seed=5)
    target = wild_target(table, 0, 1)
    here = grow_here(table, target, None, plan)
    assert here[0].node_count > 10
    assert all_equal(grow_here(table, target, None, plan, n_threads=2), here)
    assert all_equal(grow_sharded(table, target, None, plan, 1, [range(0, 7, 2), range(1, 7, 2)])[0], here)


@pytest.mark.slow  # whole trees again
@pytest.mark.parametrize("kind", thorough_for(RANDOM, [dtrees.DecisionTreeRegressor, dtrees.RandomForestRegressor, *RANDOM]))
def test_estimators(kind: Any, tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    X: NDArray[Any] = rng.random((300, 3))
    y = np.sin(4 * X[:, 0]) + X[:, 1]
    size = {"n_estimators": 5} if "n_estimators" in kind().get_params() else {}
    model = kind(criterion=NAME, min_samples_leaf=10, random_state=0, **size).fit(X, y)
    assert model.score(X, y) > 0.5
    dtrees.save(model, tmp_path / "model.dtrees")
    assert np.array_equal(dtrees.load(tmp_path / "model.dtrees").predict(X), model.predict(X))
    with pytest.raises(ValueError, match="criterion"):
        dtrees.DecisionTreeClassifier(criterion=NAME).fit(X, y > 1)


class Halfway(NamedTuple):
    """A kernel value without a score."""


def test_what_lacks_a_part_does_not_compile() -> None:
    with pytest.raises(TypingError, match="score has no version for Halfway"):
        parts.score(Halfway(), 1.0, 1.0, 1.0, 1.0)


def test_an_object_that_lacks_a_part_is_refused() -> None:
    class NoExponent(Criterion):
        name, task, row_statistic, measured = "no_exponent", "regression", "target", "leaves"

        def for_kernels(self, n_classes: int, penalty: float) -> Any:
            return Halfway()

    with pytest.raises(TypeError, match="gain_exponent"):
        NoExponent()  # type: ignore[abstract]

    class NoTask(Criterion):
        name = "no_task"

        def for_kernels(self, n_classes: int, penalty: float) -> Any:
            return Halfway()

        def gain_exponent(self, exponents: tuple[int, int]) -> int:
            return 0

    with pytest.raises(TypeError, match="'task'"):
        register(NoTask())
    with pytest.raises(ValueError, match="criterion='nothing' is not known; registered are"):
        criterion_named("nothing")
