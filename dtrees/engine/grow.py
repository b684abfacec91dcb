"""One tree: carries the grower's decisions to the shards and their answers back.

:func:`tree_steps` is the whole protocol of a tree::

    Start -> Root, Found          every shard
    while there are splits:
        Advance  -> Divided       every shard; with it the best splits of the next level
    Grow     -> subtrees          small nodes, where one shard has all columns
    Lend, Borrow -> subtrees      small nodes of a forest, where none has (:mod:`dtrees.engine.lending`)
    MeasureLeaves, MeasureNodes   means (squared error), medians (absolute error)
    Finish                        leaf values, and the last splits

A boosted tree that one shard grows all by itself is a single message instead, ``BoostTree``: on small tables the others would take longer
than the tree.

A level is an exchange or two (:class:`~dtrees.engine.messages.Way`). Where its nodes have few rows, every shard says with the best splits
it finds which rows these send left: some more bits, but one exchange. Where they have many, and zone sums tell early how good the best
split of each column is at least, a shard that does not know what others know looks for splits that cannot be the best of all, for longer
than a message takes: so the first exchange is about that, the second, ``Scan``, about the splits. Otherwise the second is ``Evaluate``:
the owners of the columns split on, and nobody else, say which rows go left.

It is a generator, which sends nothing itself: it yields the messages of an exchange with the shards, and is given their replies.
:func:`grow_tree` carries out the exchanges of one tree, :mod:`dtrees.engine.lockstep` those of many trees at once. The message that starts
a boosted tree follows right behind the one that closes the tree before, so that shards need not wait for what is done between trees.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine import messages as m
from dtrees.engine.executor import Executor
from dtrees.engine.grower import Grower, merge
from dtrees.engine.lending import NO_LOANS, Loans, grow_on_loan, rows_to_lend
from dtrees.engine.limits import gain_exponent, scaled
from dtrees.engine.offers import Offers
from dtrees.engine.plans import BoostingPlan, Criterion, ForestPlan, Rules
from dtrees.engine.scoring import scores_of, shares_of
from dtrees.engine.sums import inherits_sums, rows_to_grow
from dtrees.engine.values import class_values, newton_values, take_apart
from dtrees.split.kernel import kernel
from dtrees.split.nodes import Nodes
from dtrees.split.partition import count_left
from dtrees.split.search import Candidates
from dtrees.split.status import SPLIT
from dtrees.tree.tree import Tree

T = TypeVar("T")

#: Levels of fewer rows take one exchange: to search them, and to mark their rows on every shard, takes less time than a second one.
_OFFER_ROWS = 65_536

#: For some shards, the message to each.
Requests = Mapping[int, m.Message]
#: What yields requests, is given the replies, and returns something in the end.
Steps = Generator[Requests, Mapping[int, m.Reply], T]


@dataclass(frozen=True)
class Session:
    """An open fit: the executor, and what every message carries. ``n_slots`` are the trees to grow side by side; 0: one at a time.

    ``last_tree``: the next tree is the last one, and the one shard that has all columns need not keep them longer than they are searched.
    """

    executor: Executor
    plan: ForestPlan | BoostingPlan
    fit: str
    epoch: int = 0
    n_slots: int = 0
    last_tree: bool = False

    def opening(self, initial: NDArray[np.float64] | None) -> m.Begin:
        """Return the message that opens the fit on a shard."""
        return m.Begin(self.fit, self.epoch, self.plan, initial, self.n_slots)

    def begin(self, initial: NDArray[np.float64] | None = None) -> m.Begun:
        """Open the fit on every shard."""
        return cast(m.Begun, self.executor.broadcast(self.opening(initial))[0])

    def renewed(self) -> Session:
        """Return the session of the next epoch."""
        return replace(self, epoch=self.epoch + 1)

    @cached_property
    def boosts_at_once(self) -> bool:
        """Whether the one shard that there is grows whole trees of a boosting by itself."""
        executor, rules = self.executor, self.plan.rules
        return bool(executor.whole_threads) and isinstance(self.plan, BoostingPlan) and _subtree_rows(executor, rules, 0) >= executor.n_rows

    def to_all(self, message: m.Message) -> Requests:
        """Return the requests of one message to every shard."""
        return dict.fromkeys(range(self.executor.n_shards), message)

    def run(self, steps: Steps[T], are_begun: bool = False) -> T:
        """Carry out steps, one exchange after the other; return what they do. ``are_begun``: the first exchange is under way already."""
        try:
            requests = next(steps)
            while True:
                if not are_begun:
                    self.executor.post(requests)
                are_begun = False
                requests = steps.send(self.executor.collect())
        except StopIteration as end:
            return cast(T, end.value)

    def way(self, n_rows: int) -> m.Way:
        """Return how to search nodes of so many rows together."""
        if self.executor.whole_threads:
            return m.Way.FIND
        if n_rows < _OFFER_ROWS or self.executor.n_shards == 1:
            return m.Way.OFFER
        n_classes = self.plan.n_classes if isinstance(self.plan, ForestPlan) else 0
        return m.Way.BARS if not self.n_slots and inherits_sums(self.plan.rules, n_classes) else m.Way.FIND

    def advance(self, splits: m.Splits, marks: m.Marks, search: NDArray[np.int64], way: m.Way = m.Way.FIND) -> Steps[list[m.Divided]]:
        """Apply splits on every shard, and search nodes."""
        replies = yield self.to_all(m.Advance(self.fit, self.epoch, splits, marks, search, way))
        return [cast(m.Divided, replies[i]) for i in range(len(replies))]

    def mark(self, splits: m.Splits, offers: Offers) -> Steps[m.Marks]:
        """Return the marks of splits, asking the owners of their columns for those that were not offered."""
        lacking = ~offers.has(splits.node)
        if lacking.any():
            owner = np.where(lacking, self.executor.owner(splits.column), -1)
            asked = {i: splits.take(owner == i) for i in np.unique(owner[lacking]).tolist()}
            replies = yield {i: m.Evaluate(self.fit, self.epoch, some) for i, some in asked.items()}
            for i, some in asked.items():
                offers.note(some.node, cast(m.Marks, replies[i]), np.ones(some.node.shape[0], np.bool_))
        return offers.take(splits.node)

    def find(self, nodes: NDArray[np.int64], found: list[m.Found | m.Bars | None], offers: Offers) -> Steps[Candidates]:
        """Return the best candidates of nodes that the shards have searched, or begun to, and keep the marks of these."""
        if any(isinstance(one, m.Bars) for one in found):
            bars = np.max([cast(m.Bars, one).bars for one in found], axis=0)
            replies = yield self.to_all(m.Scan(self.fit, self.epoch, bars))
            found = [cast(m.Found, replies[i]) for i in range(len(replies))]
        best = merge_found(cast(list[m.Found], found))
        split = best.records["status"] == SPLIT
        owner = np.full(nodes.shape[0], -1)
        owner[split] = self.executor.owner(best.records["column"][split])
        for i, one in enumerate(cast(list[m.Found], found)):
            if one.marks is not None:
                offers.note(nodes, one.marks, owner == i)
        return best

    def search_rest(self, grower: Grower, nodes: NDArray[np.int64]) -> Steps[Candidates]:
        """Search the columns of nodes that were not drawn at first, until one varies."""
        replies = yield self.to_all(m.Search(self.fit, self.epoch, nodes, grower.n_drawn))
        return merge_found([cast(m.Found, replies[i]) for i in range(len(replies))])


class Grown(NamedTuple):
    """A tree, and the message that is to close it on every shard; None where shards need not know its leaves."""

    tree: Tree
    closing: m.Finish | None


def merge_found(found: list[m.Found]) -> Candidates:
    """Return the best candidate of each node over all shards."""
    return merge([f.candidates for f in found], [f.place for f in found])


def grow_tree(
    session: Session,
    tree: int,
    output: int = 0,
    learning_rate: float = 1.0,
    score: bool = False,
    is_started: bool = False,
    following: m.Start | None = None,
) -> tuple[Tree, m.Scores]:
    """Grow one tree and add it to the predictions.

    Parameters
    ----------
    session : Session
        After ``begin``.
    tree : int
        Its identity for random draws.
    output : int, default=0
        The raw prediction it improves (boosting).
    learning_rate : float, default=1.0
        Multiplies its values.
    score : bool, default=False
        Whether to compute the mean loss afterwards.
    is_started : bool, default=False
        Whether the message that starts the tree is on its way already.
    following : Start, optional
        The message that starts the next tree (:func:`starting`), to be sent right behind the one that closes this.
    """
    if session.boosts_at_once:
        message = m.BoostTree(session.fit, session.epoch, tree, output, learning_rate, score)
        return cast(m.Boosted, session.executor.broadcast(message)[0])
    executor = session.executor
    grown, closing = session.run(tree_steps(session, tree, output, learning_rate), is_started)
    if closing is None:
        return grown, m.Scores(math.nan, math.nan)
    shares = dict(enumerate(shares_of(executor.n_rows, executor.n_shards) if score else []))
    executor.post({i: replace(closing, scored=share) for i, share in shares.items()} or session.to_all(closing))
    if following is not None:
        executor.post(session.to_all(following))
    replies = executor.collect()
    return grown, scores_of([cast(m.Losses, replies[i]) for i in shares]) if shares else m.Scores(math.nan, math.nan)


def starting(session: Session, tree: int, output: int) -> m.Start:
    """Return the message that starts a tree."""
    executor = session.executor
    # A shard that grows the whole tree by itself need not search the root first.
    search, several = _rows_set_aside(session) < executor.n_rows, executor.n_shards > 1
    return m.Start(session.fit, session.epoch, tree, output, search, several, session.way(executor.n_rows))


def tree_steps(session: Session, tree: int, output: int = 0, learning_rate: float = 1.0) -> Steps[Grown]:
    """Grow one tree, and leave it to the caller to close it; see :func:`grow_tree`."""
    executor, plan = session.executor, session.plan
    start = starting(session, tree, output)
    replies = yield session.to_all(start)
    roots = [cast(m.Root, replies[i]) for i in range(len(replies))]
    root = roots[0]
    if any(r.checksum != root.checksum or r.exponents != root.exponents for r in roots):
        raise m.ReplicasDiffer(f"shards do not agree about the rows and gradients of tree {tree}")
    if not start.search:
        replies = yield {0: m.Grow(session.fit, session.epoch, np.zeros(1, np.int64), session.last_tree)}
        return (yield from _complete(session, tree, cast(m.Subtrees, replies[0])[0], root, None, output, learning_rate))
    n_classes = plan.n_classes if isinstance(plan, ForestPlan) else 0
    n_columns = plan.rules.columns_per_tree
    grower = Grower(plan.rules, n_classes, n_columns, root, _rows_set_aside(session))
    offers, last = Offers(), None
    if grower.to_search.shape[0]:
        yield from _accept(session, grower, [r.found for r in roots], offers)
    while (splits := grower.choose()) is not None:
        if grower.is_last and not _measures(plan.rules):
            if _closes(plan):
                marks = yield from session.mark(splits, offers)
                grower.divide(splits, _divided(grower, splits, marks))
                last = m.Advance(session.fit, session.epoch, splits, marks, grower.to_search)
            break
        marks = yield from session.mark(splits, offers)
        divided = yield from session.advance(splits, marks, grower.to_search, session.way(grower.rows_to_search))
        grower.divide(splits, divided[0])
        if grower.to_search.shape[0]:
            yield from _accept(session, grower, [d.found for d in divided], offers)
    loans = NO_LOANS
    if not executor.whole_threads:
        loans = yield from grow_on_loan(session, tree, grower)
    elif grower.to_grow:
        replies = yield {0: m.Grow(session.fit, session.epoch, np.array(grower.to_grow, np.int64), session.last_tree)}
        grower.attach(grower.to_grow, cast(m.Subtrees, replies[0]))
    return (yield from _complete(session, tree, grower.arrange(), root, last, output, learning_rate, loans))


def _rows_set_aside(session: Session) -> int:
    """Return up to how many rows a node is grown to its end by one shard."""
    executor, plan = session.executor, session.plan
    if not executor.whole_threads:
        return rows_to_lend(session)
    return _subtree_rows(executor, plan.rules, plan.n_classes if isinstance(plan, ForestPlan) else 0)


def _subtree_rows(executor: Executor, rules: Rules, n_classes: int) -> int:
    """Return up to how many rows a node is grown to its end by the one shard that there is."""
    if rules.max_leaf_nodes is not None:
        return 0
    if executor.whole_threads == 1:
        return executor.n_rows
    if inherits_sums(rules, n_classes):
        return rows_to_grow(executor.n_rows, executor.n_columns, executor.whole_threads)
    return max(1024, executor.n_rows // (8 * executor.whole_threads))


def _accept(session: Session, grower: Grower, found: list[m.Found | m.Bars | None], offers: Offers) -> Steps[None]:
    nodes = grower.to_search
    rest = grower.accept(nodes, (yield from session.find(nodes, found, offers)))
    if rest.shape[0]:
        grower.accept(rest, (yield from session.search_rest(grower, rest)))


def _measures(rules: Rules) -> bool:
    """Tell whether the values of leaves are measured on their rows, after the last splits."""
    return rules.criterion in (Criterion.SQUARED_ERROR, Criterion.ABSOLUTE_ERROR)


def _closes(plan: ForestPlan | BoostingPlan) -> bool:
    """Tell whether shards need to know the leaves of a tree."""
    return isinstance(plan, BoostingPlan) or plan.out_of_bag


def _divided(grower: Grower, splits: m.Splits, marks: m.Marks) -> m.Divided:
    """Return where children will lie, as their marks tell."""
    start, mid, stop = grower.places(splits.node)
    counts = count_left(marks.bits, marks.offsets, start, mid, stop)
    return m.Divided(start + counts[:, 0], start + counts[:, 1], None)


def _complete(
    session: Session,
    number: int,
    nodes: Nodes,
    root: m.Root,
    last: m.Advance | None,
    output: int,
    learning_rate: float,
    loans: Loans = NO_LOANS,
) -> Steps[Grown]:
    """Turn sums into values. One shard is asked for what they need: another for each tree, since all know it, but for what was lent."""
    plan = session.plan
    rules = plan.rules
    one = number % session.executor.n_shards
    records = nodes.records
    left, right, feature, threshold, missing_left, n_samples, leaf, start, mid, stop = take_apart(records)
    a_exponent, b_exponent = root.exponents
    if rules.criterion == Criterion.SQUARED_ERROR:
        knows = loans.shard_of(start, one)
        asked = {i: knows == i for i in np.unique(knows).tolist()}
        replies = yield {i: m.MeasureLeaves(session.fit, session.epoch, start[mine], mid[mine]) for i, mine in asked.items()}
        mean, spread = np.empty(start.shape[0]), np.empty(start.shape[0])
        for i, mine in asked.items():
            mean[mine], spread[mine] = cast(m.Measured, replies[i])
        weight = scaled(_weights(nodes, n_samples), -b_exponent)
        value, impurity = np.zeros((leaf.shape[0], 1)), np.zeros(leaf.shape[0])
        value[leaf, 0], impurity[leaf] = mean, scaled(spread, -b_exponent)
        gain = scaled(records["gain"], -gain_exponent(rules.criterion, root.exponents))
        _from_leaves(left, right, weight, gain, value[:, 0], impurity)
    elif rules.criterion == Criterion.ABSOLUTE_ERROR:
        places = records["start"].astype(np.int64), records["mid"].astype(np.int64)
        replies = yield {one: m.MeasureNodes(session.fit, session.epoch, left, right, *places)}
        median, spread = cast(m.Measured, replies[one])
        weight = _weights(nodes, n_samples)
        value, impurity = median[:, None], spread / weight
        weight = scaled(weight, -b_exponent)
        gain = scaled(records["gain"], -gain_exponent(rules.criterion, root.exponents))
    elif rules.criterion == Criterion.NEWTON:
        value, weight, impurity, gain = newton_values(
            records, nodes.sums, a_exponent, b_exponent, gain_exponent(rules.criterion, root.exponents), rules.reg_lambda, learning_rate
        )
    else:
        value, weight, impurity = class_values(nodes, rules.criterion, b_exponent)
        gain = scaled(records["gain"], -b_exponent)
    closing = None
    if _closes(plan):
        # A forest adds up what leaves say of rows out of sample, boosting what they say of all rows.
        told = np.flatnonzero(stop > mid) if isinstance(plan, ForestPlan) else slice(None)
        start, mid, stop, value_of_leaf = start[told], mid[told], stop[told], value[leaf][told]
        closing = m.Finish(session.fit, session.epoch, output, start, mid, stop, value_of_leaf, last=last)
        if loans.outside:
            closing = replace(closing, lent=loans.shard_of(start, -1) >= 0, outside=np.concatenate(loans.outside))
    tree = Tree(
        children_left=left,
        children_right=right,
        feature=feature,
        threshold=threshold,
        missing_go_to_left=missing_left,
        impurity=impurity,
        gain=gain,
        n_node_samples=n_samples,
        weighted_n_node_samples=weight,
        value=value,
    )
    return Grown(tree, closing)


def _weights(nodes: Nodes, n_samples: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the weights of nodes, which are their numbers of rows where no sums were kept."""
    return (nodes.sums[:, 1] if nodes.sums.shape[1] else n_samples).astype(np.float64)


@kernel
def _from_leaves(left, right, weight, gain, value, impurity):  # type: ignore[no-untyped-def]
    """Fill means and impurities of inner nodes, whose children have higher numbers, from their leaves'.

    ``impurity`` holds weighted sums of squares at leaves, and mean squares everywhere afterwards. A node's sum of squares is its
    children's plus the gain of its split.
    """
    n = left.shape[0]
    for node in range(n - 1, -1, -1):
        i, j = left[node], right[node]
        if i >= 0:
            value[node] = value[i] + (value[j] - value[i]) * (weight[j] / weight[node])
            impurity[node] = impurity[i] + impurity[j] + gain[node]
    for node in range(n):
        impurity[node] = impurity[node] / weight[node] if weight[node] > 0.0 else 0.0
