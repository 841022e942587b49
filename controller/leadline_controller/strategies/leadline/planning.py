"""Nodes for pods that come together, so that their requests wait the least: greedily, then by moves
and exchanges as long as these help, then exactly, where what is left to try is little. Pure.

Where it is not exact, a lower bound tells how far the plan is from the best one at most: each pod
on its best node, as if it came alone. Others never shorten its wait."""

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations

import numpy as np

from leadline_controller.framework.view import Bools, Floats, Ints
from leadline_controller.strategies.leadline.waits import Waits

# Beyond these, sets of pods on nodes to evaluate, and combinations to try, no search is exact.
_MOST_EVALUATED, _MOST_TRIED = 40_000, 3_000_000
_MOST_STEPS = 4  # for each pod
_LEAST_DIVIDED, _MOST_DIVIDED = 3, 4096  # pods of two nodes, and ways to divide these
_PAIR_NODES = 8  # on which two peers are tried together
_LEAST_GAIN = 1e-9  # a share: less is rounding
_FEW_NODES = 200  # among so many is searched, if a pod has no more good ones


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A plan for m pods."""

    nodes: Ints  # of each pod, -1 for one without room, shape (m,)
    waits_s: float  # each second, of all pods with a node
    least_s: float  # no plan for the same pods waits less
    exact: bool  # whether it is the best one

    @property
    def loss(self) -> float:
        """By which share it waits longer than the best plan, at most."""
        if self.exact or self.waits_s <= self.least_s:
            return 0.0
        return self.waits_s / self.least_s - 1.0 if self.least_s > 0 else np.inf

    @property
    def method(self) -> str:
        """How near the plan is to the best possible."""
        if self.exact:
            return "the best possible for all together"
        return f"within {self.loss:.1%} of the best possible for all together"


def search(waits: Waits, start: Ints | None = None, runs: Bools | None = None) -> Found:
    """The plan with the most pods on nodes, and of these with the least wait, or one that is near
    it. start: a plan than which it is not worse, -1 for a pod without a node, shape (m,). runs: the
    pods that run, shape (m,): each has a node in `start`, and in what is found."""
    pods, _ = waits.shape
    if not pods:
        return Found(np.zeros(0, np.int64), 0.0, 0.0, exact=True)
    least_s = waits.alone_s(least=True)
    near = _near(least_s, max(pods, _FEW_NODES // pods))
    if start is not None:
        near = np.union1d(near, start[start >= 0])
    nearer = waits.among(near)
    local = _Local(nearer)
    local.run(None if start is None else np.where(start < 0, -1, np.searchsorted(near, start)))
    placed = local.at >= 0
    bound_s = float(least_s[placed].min(axis=1, initial=np.inf).sum())
    total_s = nearer.total_s(local.at)
    found = Found(_back(near, local.at), total_s, bound_s, exact=False)
    # On nodes where even the pod alone costs more than the plan can lose, no better plan has it.
    spare_s = total_s - bound_s + _LEAST_GAIN * total_s
    kept = least_s <= least_s.min(axis=1, keepdims=True) + spare_s
    if not placed.all():
        kept = np.isfinite(least_s)
    left = np.flatnonzero((kept & np.isfinite(least_s)).any(axis=0))
    allowed = waits.room.allowed & kept
    if not _is_small(pods, left.size):
        return found
    smaller = replace(waits, room=waits.room._replace(allowed=allowed)).among(left)
    best = _exactly(smaller, runs)
    if best is None:
        return found
    exact_s = smaller.total_s(best)
    if (best >= 0).sum() == placed.sum() and exact_s >= total_s * (1 - _LEAST_GAIN):
        return replace(found, exact=True)
    return Found(_back(left, best), exact_s, exact_s, exact=True)


def _back(nodes: Ints, at: Ints) -> Ints:
    return np.where(at >= 0, nodes[at], -1) if nodes.size else at


def _near(least_s: Floats, count: int) -> Ints:
    """The best `count` nodes of each pod: with one for each pod no two need share."""
    if least_s.shape[1] <= count:
        return np.arange(least_s.shape[1])
    best = np.argpartition(least_s, count - 1, axis=1)[:, :count]
    return np.unique(best)


class _Local:
    """Pods on nodes, and what each would cost elsewhere, kept up to date."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._pods, self._nodes = waits.shape
        self.at: Ints = np.full(self._pods, -1)
        # Of the pods on each node together, s each second, without what they wait for each other.
        self._node_s = np.zeros(self._nodes)
        # What a pod adds to a node, or takes away where it is.
        self._more_s = waits.alone_s()
        self._pairs = waits.between.pairs()
        self._peers: list[list[int]] = [[] for _ in range(self._pods)]
        for a, b in self._pairs:
            self._peers[a].append(b)
            self._peers[b].append(a)
        # What a pod and its peers would wait for each other.
        self._peers_s = np.zeros((self._pods, self._nodes))

    def run(self, start: Ints | None = None) -> None:
        """Place pod after pod, the one that has most to lose first, then improve. start: where pods
        are before that; then a pod may make way for another one, too."""
        if start is not None:
            self._put(list(enumerate(start.tolist())))
        for _ in range(self._pods):
            if not self._place_next():
                break
        for _ in range(_MOST_STEPS * self._pods):
            if not (
                self._move()
                or self._exchange()
                or self._move_pair()
                or (start is not None and (self._make_way() or self._divide()))
            ):
                break
            self._place_next()

    def _place_next(self) -> bool:
        costs = np.where((self.at < 0)[:, np.newaxis], self._more_s + self._peers_s, np.inf)
        first = costs.min(axis=1, initial=np.inf)
        if not np.isfinite(first).any():
            return False
        if self._nodes > 1:
            second = np.partition(costs, 1, axis=1)[:, 1]
            # Peers of what is placed come first, as the rest depends on them.
            lost = np.where(np.isfinite(second), second, np.finfo(float).max) - first
            lost = np.where(np.isfinite(first), lost, -np.inf)
        else:
            lost = -first
        pod = int(np.argmax(lost))
        self._put([(pod, int(costs[pod].argmin()))])
        return True

    def _move(self) -> bool:
        """The move of one pod that helps most."""
        placed = np.flatnonzero(self.at >= 0)
        costs = self._more_s + self._peers_s
        gains = costs[placed, self.at[placed]][:, np.newaxis] - costs[placed]
        if not gains.size:
            return False
        row, node = np.unravel_index(int(np.argmax(gains)), gains.shape)
        if gains[row, node] <= self._least_gain():
            return False
        self._put([(int(placed[row]), int(node))])
        return True

    def _exchange(self) -> bool:
        """The exchange of two pods' nodes that helps most."""
        pairs = [
            (a, b)
            for a, b in combinations(np.flatnonzero(self.at >= 0).tolist(), 2)
            if self.at[a] != self.at[b]
        ]
        if not pairs:
            return False
        ends = np.array(pairs)
        one, other = ends.T
        gains = np.zeros(len(pairs))
        for come, go in ((one, other), (other, one)):
            node = self.at[go]
            chosen = self.at == node[:, np.newaxis]
            rows = np.arange(len(pairs))
            chosen[rows, come], chosen[rows, go] = True, False
            gains += self._node_s[node] - self._waits.together_s(node, chosen)
            gains += self._peers_s[come, self.at[come]] - self._peers_s[come, node]
        # Where they are peers of each other, both columns see the other one where it was.
        for row, (a, b) in enumerate(pairs):
            if b in self._peers[a]:
                gains[row] -= 2 * self._waits.between.waits_s(a, b)[self.at[a], self.at[b]]
        best = int(np.argmax(gains))
        if gains[best] <= self._least_gain():
            return False
        a, b = pairs[best]
        self._put([(a, int(self.at[b])), (b, int(self.at[a]))])
        return True

    def _move_pair(self) -> bool:
        """The move of two peers to one node that helps most."""
        best_gain, best = self._least_gain(), None
        for a, b in self._pairs:
            if min(self.at[a], self.at[b]) < 0:
                continue
            between = self._waits.between.waits_s(a, b)
            if self.at[a] != self.at[b]:
                away = self.at[[a, b]]
                left_s = self._node_s[away] - self._more_s[[a, b], away]
            else:
                away = self.at[[a]]
                chosen = self.at == away[:, np.newaxis]
                chosen[:, [a, b]] = False
                left_s = self._waits.together_s(away, chosen)
            before = float(self._node_s[away].sum() - left_s.sum())
            before += self._peers_s[a, self.at[a]] + self._peers_s[b, self.at[b]]
            before -= between[self.at[a], self.at[b]]  # it is in both
            with_others = self._peers_s[[a, b]].sum(axis=0)
            with_others -= between[:, self.at[b]] + between[:, self.at[a]]
            # As if the two did not slow each other down.
            hoped = self._more_s[[a, b]].sum(axis=0) + with_others
            nodes = np.argsort(hoped, kind="stable")[:_PAIR_NODES]
            nodes = nodes[hoped[nodes] < before - best_gain]
            if not nodes.size:
                continue
            chosen = self.at == nodes[:, np.newaxis]
            chosen[:, [a, b]] = True
            base = self._node_s.copy()
            base[away] = left_s
            after = self._waits.together_s(nodes, chosen) - base[nodes] + with_others[nodes]
            first = int(np.argmin(after))
            if before - after[first] > best_gain:
                best_gain, best = before - float(after[first]), (a, b, int(nodes[first]))
        if best is None:
            return False
        self._put([(best[0], best[2]), (best[1], best[2])])
        return True

    def _make_way(self) -> bool:
        """The move of one pod to a node from which another one goes to a third node that helps
        most; of a pod without a node, if there is one that finds a node so."""
        comes, goes = (each.ravel() for each in np.indices((self._pods, self._pods)))
        chosen = (self.at[goes] >= 0) & (self.at[comes] != self.at[goes])
        between = self._waits.between  # what peers wait for each other would count where they were
        chosen &= (between.requests_per_s + between.mbps)[comes, goes] == 0
        comes, goes = comes[chosen], goes[chosen]
        if not comes.size:
            return False
        costs = self._more_s + self._peers_s
        every = np.arange(self._pods)
        now_s = np.where(self.at >= 0, costs[every, self.at], 0.0)
        node, before = self.at[goes], self.at[comes]
        together = self.at == node[:, np.newaxis]
        rows = np.arange(comes.size)
        together[rows, comes], together[rows, goes] = True, False
        onto_s = self._waits.together_s(node, together) - self._node_s[node]
        onto_s += self._peers_s[comes, node] - self._peers_s[goes, node]
        away_s = costs[goes]
        away_s[rows, node] = np.inf
        away_s[rows[before >= 0], before[before >= 0]] = np.inf
        to = away_s.argmin(axis=1)
        gains = now_s[comes] - onto_s - away_s[rows, to]
        finds = (before < 0) & np.isfinite(gains)
        if finds.any():
            gains[~finds] = -np.inf
        elif gains.max() <= self._least_gain():
            return False
        best = int(np.argmax(gains))
        pod, other = int(comes[best]), int(goes[best])
        self._put([(pod, int(node[best])), (other, int(to[best]))])
        return True

    def _divide(self) -> bool:
        """The pods of two nodes divided anew between these, where that helps most: one goes for two
        that come, for instance."""
        ends, sets, sizes = list[tuple[int, int]](), list[Bools](), list[int]()
        counts = np.bincount(self.at[self.at >= 0], minlength=self._nodes)
        pairs = list(combinations(np.flatnonzero(counts).tolist(), 2))
        for x, y in sorted(pairs, key=lambda each: counts[each[0]] + counts[each[1]]):
            pods = np.flatnonzero((self.at == x) | (self.at == y))
            if pods.size < _LEAST_DIVIDED:  # moves and exchanges are all that there are
                continue
            if sum(sizes) + (1 << pods.size) > _MOST_DIVIDED:
                break
            chosen = np.zeros((1 << pods.size, self._pods), np.bool_)
            chosen[:, pods] = np.arange(len(chosen))[:, np.newaxis] >> np.arange(pods.size) & 1
            ends.append((x, y))
            sets.append(chosen)
            sizes.append(len(chosen))
        if not ends:
            return False
        on_x, both = np.concatenate(sets), np.repeat(np.array(ends), sizes, axis=0)
        on_y = ((self.at == both[:, :1]) | (self.at == both[:, 1:])) & ~on_x
        after_s = -self._node_s[both].sum(axis=1)
        peers_s = self._peers_s[np.arange(self._pods), self.at] * (self.at >= 0)
        for node, chosen in zip(both.T, (on_x, on_y), strict=True):
            after_s += self._waits.together_s(node, chosen)
            after_s += (chosen * (self._peers_s[:, node].T - peers_s)).sum(axis=1)
        best = int(np.argmin(after_s))
        if -after_s[best] <= self._least_gain():
            return False
        x, y = both[best].tolist()
        before, before_s = self.at.copy(), self._waits.total_s(self.at)
        places = np.where(on_x[best], x, np.where(on_y[best], y, self.at))
        self._put(list(enumerate(places.tolist())))
        if before_s - self._waits.total_s(self.at) > self._least_gain():
            return True
        # Peers that both change their places are seen where the other one was.
        self._put(list(enumerate(before.tolist())))
        return False

    def _least_gain(self) -> float:
        return _LEAST_GAIN * (float(self._node_s.sum()) + 1e-6)

    def _put(self, places: list[tuple[int, int]]) -> None:
        changed = {node for _, node in places} | {int(self.at[pod]) for pod, _ in places}
        for pod, node in places:
            self.at[pod] = node
        for node in changed - {-1}:
            self._look(node)
        for one in {peer for pod, _ in places for peer in self._peers[pod]}:
            self._peers_s[one] = sum(
                self._waits.between.waits_s(one, peer)[:, self.at[peer]]
                for peer in self._peers[one]
                if self.at[peer] >= 0
            )

    def _look(self, node: int) -> None:
        """What the node's pods wait, and what each pod adds to that or takes away."""
        here = self.at == node
        sets = here ^ np.eye(self._pods, dtype=np.bool_)
        sets = np.concatenate((sets, here[np.newaxis]))
        found = self._waits.together_s(np.full(len(sets), node), sets)
        self._node_s[node] = found[-1]
        self._more_s[:, node] = np.where(here, found[-1] - found[:-1], found[:-1] - found[-1])


def _is_small(pods: int, nodes: int) -> bool:
    return nodes * pods * float(1 << pods) / 2 <= _MOST_EVALUATED


def _exactly(waits: Waits, runs: Bools | None = None) -> Ints | None:
    """The best plan; None if there are too many to try. runs: pods that must have a node."""
    pods, nodes = waits.shape
    sets = (np.arange(2**pods)[:, np.newaxis] >> np.arange(pods) & 1).astype(np.bool_)
    table = waits.together_s(np.repeat(np.arange(nodes), len(sets)), np.tile(sets, (nodes, 1)))
    table = table.reshape(nodes, len(sets))
    finite = table[np.isfinite(table)]
    # To leave one pod without a node is worse than any wait; one that runs, than all that do not.
    weights = np.ones(pods) if runs is None else np.where(runs, pods + 1.0, 1.0)
    nowhere = (1.0 + 2.0 * finite.sum(initial=0.0)) * (sets @ weights)
    table = np.concatenate((table, nowhere[np.newaxis]))
    pairs = waits.between.pairs()
    found = _by_enumeration(waits, table, pairs) if pairs else _by_subsets(table)
    return None if found is None else np.where(found == nodes, -1, found)


@lru_cache(maxsize=8)
def _subsets(pods: int) -> tuple[Ints, Ints, Ints]:
    """Each subset of each set of pods as bits, sorted by the sets, with the first entry of each
    set: sets and subsets of shape (3^m,), entries of shape (2^m,)."""
    every = np.arange(2**pods)
    sets, parts = np.nonzero((every & ~every[:, np.newaxis]) == 0)
    return sets, parts, np.searchsorted(sets, every)


def _by_subsets(table: Floats) -> Ints | None:
    """By dynamic programming: the least wait of each set of pods on the first nodes, one node after
    the other. table: of each set of pods on each node, shape (n, 2^m). Returns a node for each
    pod."""
    pods = table.shape[1].bit_length() - 1
    if 3**pods * len(table) > _MOST_TRIED:
        return None
    sets, parts, starts = _subsets(pods)
    stages = [np.where(np.arange(table.shape[1]) == 0, 0.0, np.inf)]
    for row in table:
        stages.append(np.minimum.reduceat(stages[-1][sets ^ parts] + row[parts], starts))
    at = np.zeros(pods, np.int64)
    left = table.shape[1] - 1
    for node in range(len(table) - 1, -1, -1):
        mine = parts[sets == left]
        part = int(mine[np.argmin(stages[node][left ^ mine] + table[node][mine])])
        at[[pod for pod in range(pods) if part >> pod & 1]] = node
        left ^= part
    return at


def _by_enumeration(waits: Waits, table: Floats, pairs: list[tuple[int, int]]) -> Ints | None:
    """Of all plans. See `_by_subsets`."""
    pods, nodes = waits.shape
    choices = [
        np.append(np.flatnonzero(np.isfinite(table[:-1, 1 << pod])), nodes) for pod in range(pods)
    ]
    plans = int(np.prod([float(each.size) for each in choices]))
    if plans * pods * (nodes + 1) > _MOST_TRIED:
        return None
    at = np.array([each.ravel() for each in np.meshgrid(*choices, indexing="ij")])
    total = np.zeros(plans)
    bits = (1 << np.arange(pods))[:, np.newaxis]
    for node, row in enumerate(table):
        total += row[((at == node) * bits).sum(axis=0)]
    for a, b in pairs:
        padded = np.zeros((nodes + 1, nodes + 1))
        padded[:nodes, :nodes] = waits.between.waits_s(a, b)
        total += padded[at[a], at[b]]
    found: Ints = at[:, int(np.argmin(total))]
    return found
