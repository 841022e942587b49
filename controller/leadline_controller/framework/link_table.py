"""The round trips between the nodes of a decision: the measured ones, and estimates of others."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from leadline_controller.framework.model import Link
from leadline_controller.framework.node_table import Bools, Floats, Ints

# Of so few nodes, the round trips to each are taken one by one; of more, those of a sample are.
_FEW_NODES, _SAMPLED_NODES = 8, 128


class Estimates(Protocol):
    """Round trips between the n nodes of a table that were not measured, ms, NaN if unknown."""

    def rtt_ms_from(self, node: int) -> Floats:
        """From `node` to each, shape (n,)."""
        ...

    def modelled_ms(self, a: Ints, b: Ints) -> Floats:
        """Of m pairs, shape (m,). Quicker than rtt_ms_from, and less precise."""
        ...

    def modelled_ms_to(self, nodes: Ints) -> Floats:
        """From each to m nodes, shape (n, m). As modelled_ms."""
        ...


class LinkTable:
    """Round trips between nodes: the measured ones, sparse, because a full mesh of thousands of
    nodes is not measured, and estimates of the others where there are any. unreachable: the ends of
    links that lose all packets, shape (k, 2)."""

    def __init__(self, index: Mapping[str, int], links: Sequence[Link]) -> None:
        pairs = [
            (index[link.a], index[link.b], link.rtt_ms)
            for link in links
            if link.rtt_ms is not None and link.a in index and link.b in index
        ]
        ends = np.array([(a, b) for a, b, _ in pairs], dtype=np.int64).reshape(-1, 2)
        self._fill(len(index), ends, np.array([rtt for _, _, rtt in pairs], dtype=np.float64))

    @classmethod
    def of_columns(
        cls,
        count: int,
        ends: Ints,
        rtt_ms: Floats,
        at_s: Floats,
        estimates: Estimates | None = None,
        unreachable: Ints | None = None,
    ) -> "LinkTable":
        """A table of m links between `count` nodes. ends: indexes of each link's nodes, shape
        (m, 2). rtt_ms: round trips, ms, shape (m,). at_s: their times, shape (m,).
        estimates: of the other pairs. unreachable: the ends of k links that lose all packets,
        shape (k, 2): they are unknown, and not estimated."""
        table = cls.__new__(cls)
        table._fill(count, ends, rtt_ms, at_s)
        table.estimates = estimates
        if unreachable is not None:
            table.unreachable = unreachable
            for a, b in unreachable.tolist():
                table._unreachable.setdefault(a, []).append(b)
                table._unreachable.setdefault(b, []).append(a)
        return table

    def _fill(self, count: int, ends: Ints, rtt_ms: Floats, at_s: Floats | None = None) -> None:
        self._count = count
        self.estimates: Estimates | None = None
        self.unreachable: Ints = np.zeros((0, 2), dtype=np.int64)
        self._unreachable: dict[int, list[int]] = {}
        self._statistics: tuple[Bools, Floats, Floats] | None = None
        at_s = np.full(rtt_ms.shape, np.nan) if at_s is None else at_s
        self._at_s = np.concatenate((at_s, at_s))
        self._from = np.concatenate((ends[:, 0], ends[:, 1]))
        self._to = np.concatenate((ends[:, 1], ends[:, 0]))
        self._rtt_ms = np.concatenate((rtt_ms, rtt_ms))
        self._order = np.argsort(self._from, kind="stable")
        self._starts = np.searchsorted(self._from[self._order], np.arange(self._count + 1))

    def rtt_ms_from(self, node: int) -> Floats:
        """Round trip from `node` to each node, ms, shape (n,): measured, else estimated, else
        NaN. A node that does not reply is NaN."""
        if self.estimates is None:
            column = np.full(self._count, np.nan)
        else:
            column = self.estimates.rtt_ms_from(node)
        rows = self._order[self._starts[node] : self._starts[node + 1]]
        column[self._to[rows]] = self._rtt_ms[rows]
        column[self._unreachable.get(node, [])] = np.nan
        return column

    def measured(self) -> tuple[Ints, Floats, Floats]:
        """Of the m measured links the ends, shape (m, 2), the round trips, ms, and the times, NaN
        if unknown, shapes (m,), in their order."""
        count = len(self._rtt_ms) // 2
        ends = np.stack((self._from[:count], self._to[:count]), axis=1)
        return ends, self._rtt_ms[:count], self._at_s[:count]

    @cached_property
    def oldest_at_s(self) -> Floats:
        """Time of the oldest measurement of each node's round trips, shape (n,), seconds on the
        clock of the decision; NaN if there is none."""
        oldest = np.full(self._count, np.inf)
        np.fmin.at(oldest, self._from, self._at_s)
        oldest[np.isinf(oldest)] = np.nan
        return oldest

    @cached_property
    def worst_rtt_ms(self) -> float:
        """The longest measured round trip of all links, ms; NaN if there is none."""
        return float(self._rtt_ms.max()) if self._rtt_ms.size else float("nan")

    def rtt_mean_and_deviation_ms(self, among: Bools) -> tuple[Floats, Floats]:
        """Mean and population standard deviation of each node's round trips to the other nodes of
        `among`, ms, shapes (n,), NaN for a node without any (DACS Eq. 12-13). The last result is
        cached, because many decisions share it.

        Pairs that are not measured count as estimated: which pairs are measured first says nothing
        about a node, but would change its mean.
        """
        cached = self._statistics  # once, as another thread may replace it
        if cached is not None and cached[0] is among:
            return cached[1:]
        if self.estimates is None:
            kept = among[self._to]
            found = self._sums(self._from[kept], self._rtt_ms[kept])
        elif among.sum() <= _FEW_NODES:
            nodes = np.flatnonzero(among)
            rows = [self.rtt_ms_from(int(node)) for node in nodes]
            rtt_ms = np.array(rows).reshape(-1, self._count)
            rtt_ms[np.arange(len(nodes)), nodes] = np.nan
            here = np.flatnonzero(~np.isnan(rtt_ms))
            found = self._sums(here % self._count, rtt_ms.ravel()[here])
        else:
            found = self._sums_with_estimates(self.estimates, among)
        count, total, square = found
        with np.errstate(invalid="ignore"):
            mean = total / count
            # Rounding can make the variance of equal values slightly negative.
            deviation = np.sqrt(np.maximum(square / count - mean**2, 0.0))
        self._statistics = among, mean, deviation
        return mean, deviation

    def _sums(self, nodes: Ints, rtt_ms: Floats) -> Floats:
        """For each node the number, the sum and the sum of squares of its values, shape (3, n)."""
        weights = (np.ones(len(nodes)), rtt_ms, rtt_ms**2)
        return np.array([np.bincount(nodes, each, self._count) for each in weights])

    def _sums_with_estimates(self, estimates: Estimates, among: Bools) -> Floats:
        """As _sums, of each node's pairs with `among`, in O(n + m).

        The model's sums are those of a sample of `among`, the same one for all nodes, and each
        measured pair adds its difference from the model: a difference estimator (Cochran,
        "Sampling Techniques", 3rd edition 1977, section 7.9).
        """
        nodes = sample = np.flatnonzero(among)
        if len(nodes) > _SAMPLED_NODES:
            sample = np.random.default_rng(0).choice(nodes, _SAMPLED_NODES, replace=False)
        modelled_ms = estimates.modelled_ms_to(sample)
        modelled_ms[sample, np.arange(len(sample))] = np.nan
        is_known = ~np.isnan(modelled_ms)
        modelled_ms[~is_known] = 0.0
        square = np.einsum("ij,ij->i", modelled_ms, modelled_ms)
        whole = np.array([is_known.sum(axis=1), modelled_ms.sum(axis=1), square])
        whole *= len(nodes) / len(sample)
        kept = among[self._to]
        measured = self._sums(self._from[kept], self._rtt_ms[kept])
        lost = [(a, b) for a, others in self._unreachable.items() for b in others]
        not_modelled = np.concatenate(
            (np.stack((self._from, self._to), axis=1), np.reshape(lost, (-1, 2)).astype(np.int64))
        )
        not_modelled = not_modelled[among[not_modelled[:, 1]]]
        instead_ms = estimates.modelled_ms(*not_modelled.T)
        is_known = ~np.isnan(instead_ms)
        found = whole + measured - self._sums(not_modelled[is_known, 0], instead_ms[is_known])
        # Of a node that hardly any other one can reach, the model says nothing.
        return np.where(found[0] < whole[0] / 2, measured, found)
