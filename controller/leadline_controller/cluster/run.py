"""A run of decisions: the pods that it has placed, and what their strategy charges them beyond
their requests (DACS Algorithm 1). It is over when no decision came for a second."""

from collections.abc import Mapping

import numpy as np

from leadline_controller.framework.node_table import Ints, NodeTable

_GAP_S = 1.0  # between two decisions of one run, at most


class Run:
    """One run. seen_s: when its last decision was, on the clock of decisions. placed: its pods on
    each of the n nodes of the table, shape (n,) (DACS' zeta). charged: resource -> base units that
    these are charged beyond their requests on each node, shape (n,) (DACS' A)."""

    def __init__(self) -> None:
        self.seen_s = -np.inf
        self.placed: Ints = np.zeros(0, dtype=np.int64)
        self.charged: dict[str, Ints] = {}
        self._by_uid: dict[str, tuple[str, Mapping[str, int]]] = {}  # its node and charge
        self._index: Mapping[str, int] = {}

    def is_over(self, now_s: float) -> bool:
        """Whether a decision now would be the first one of a new run."""
        return now_s - self.seen_s > _GAP_S

    def begin(self) -> None:
        """Start a new run: DACS' zeta is 0 again (Algorithm 1, lines 1-2), and pods are charged
        their requests."""
        self._by_uid.clear()
        self.placed[:] = 0
        self.charged.clear()

    def pods(self) -> list[str]:
        """The uids of its pods."""
        return list(self._by_uid)

    def join(self, uid: str, node: str, charged: Mapping[str, int]) -> None:
        """The run places a pod on this node, at this charge beyond its requests."""
        self.leave(uid)
        self._by_uid[uid] = node, charged
        self._count(node, charged, +1)

    def leave(self, uid: str) -> None:
        """A pod that the run may have placed counts no longer."""
        if (placed := self._by_uid.pop(uid, None)) is not None:
            self._count(*placed, -1)

    def seen_on(self, uid: str, node: str) -> None:
        """The watch shows a pod on this node. Where another scheduler chose it for a pod of this
        run, what it is charged there is not known."""
        placed = self._by_uid.get(uid)
        if placed is not None and placed[0] != node:
            self.join(uid, node, {})

    def recount(self, table: NodeTable) -> None:
        """Count all of its pods on the nodes of this table."""
        self._index = table.index
        self.placed = np.zeros(len(table), dtype=np.int64)
        self.charged.clear()
        for node, charged in self._by_uid.values():
            self._count(node, charged, +1)

    def _count(self, node: str, charged: Mapping[str, int], sign: int) -> None:
        at = self._index.get(node)
        if at is None:
            return
        self.placed[at] += sign
        for resource, amount in charged.items():
            if resource not in self.charged:
                self.charged[resource] = np.zeros(self.placed.size, dtype=np.int64)
            self.charged[resource][at] += sign * amount
