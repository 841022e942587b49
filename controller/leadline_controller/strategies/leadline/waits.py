"""What pods that come together wait, each for the others beside it: the same arithmetic as for one
pod, over the m pods of a batch and n nodes. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from leadline_controller.framework.view import Bools, Floats, Ints
from leadline_controller.strategies.leadline.terms import (
    Uncertain,
    Work,
    out_of_memory,
    over_error,
    restarts_ms,
)

MAX_MS = 1e12


class PodColumns(NamedTuple):
    """What one pod waits for, and what it adds to boards; columns of shape (n,)."""

    requests_per_s: float
    others: Uncertain  # the terms on which the pods beside it have no influence, ms a request
    work: Work
    memory: Floats  # share of the board's memory that it uses
    adds_busy: Floats  # by how much the others see their board's share of busy cores grow
    adds_memory: Floats


class Boards(NamedTuple):
    """How busy boards are without the batch: shares, their standard deviations, and the shares if
    the reports are wrong, shapes (n,)."""

    busy: Floats
    busy_error: Floats
    busy_if_wrong: Floats
    memory: Floats
    memory_error: Floats
    memory_if_wrong: Floats


class Room(NamedTuple):
    """What pods take and nodes have, of r resources."""

    allowed: Bools  # nodes on which a pod may be, shape (m, n)
    amounts: Floats  # shape (m, r)
    free: Floats  # shape (n, r)


class Between(NamedTuple):
    """What pods of the batch exchange with each other."""

    requests_per_s: Floats  # shape (m, m), symmetric, 0 on the diagonal
    mbps: Floats  # as requests_per_s
    # Of these of the n nodes: seconds of a round trip and of a megabit between each two, with what
    # their errors cost, symmetric, 0 on the diagonal.
    distances: Callable[[Ints], tuple[Floats, Floats]]
    trip_s: Floats = np.zeros((0, 0))
    megabit_s: Floats = np.zeros((0, 0))

    def among(self, nodes: Ints) -> "Between":
        """With the distances between these nodes."""
        if not self.pairs():
            return self
        trip_s, megabit_s = self.distances(nodes)
        return self._replace(trip_s=trip_s, megabit_s=megabit_s)

    def waits_s(self, a: int, b: int) -> Floats:
        """Of the pods a and b for each other, s each second, by their nodes, shape (n, n)."""
        found: Floats = self.requests_per_s[a, b] * self.trip_s + self.mbps[a, b] * self.megabit_s
        return found

    def pairs(self) -> list[tuple[int, int]]:
        """The pods that exchange something, each pair once."""
        ends = np.nonzero(np.triu(self.requests_per_s + self.mbps))
        return list(zip(*(each.tolist() for each in ends), strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """The seconds waited each second by the requests of a batch: the sum over its pods of requests
    a second times the wait of one. A pod of a Job, which serves one request, counts as one that
    serves one each second."""

    per_s: Floats  # requests each millisecond, shape (m, 1)
    others: Uncertain  # shape (m, n), as all columns of pods below
    work: Work
    own_memory: Floats
    adds_busy: Floats
    adds_memory: Floats
    same_service: Floats  # 1 for two pods of one service, shape (m, m), 0 on the diagonal
    boards: Boards
    room: Room
    between: Between
    caution: float | None  # of the strategy; None leaves out what errors cost
    memory_counts: bool

    @classmethod
    def of(
        cls,
        pods: Sequence[PodColumns],
        same_service: Floats,
        boards: Boards,
        room: Room,
        between: Between,
        caution: float | None,
        *,
        memory_counts: bool,
    ) -> "Waits":
        """Of pods on the same nodes."""
        others, work = (
            [np.array(each) for each in zip(*columns, strict=True)]
            for columns in ([pod.others for pod in pods], [pod.work for pod in pods])
        )
        rates = np.array([[pod.requests_per_s / 1000] for pod in pods])
        memory, busy, used = (
            np.array(each)
            for each in zip(*((p.memory, p.adds_busy, p.adds_memory) for p in pods), strict=True)
        )
        return cls(
            *(rates, Uncertain(*others), Work(*work), memory, busy, used, same_service),
            *(boards, room, between, caution),
            memory_counts=memory_counts,
        )

    def among(self, nodes: Ints) -> "Waits":
        """On these nodes only."""
        every = slice(None)
        return replace(
            self,
            others=Uncertain(*(each[:, nodes] for each in self.others)),
            work=Work(*(each[every, nodes] for each in self.work)),
            own_memory=self.own_memory[:, nodes],
            adds_busy=self.adds_busy[:, nodes],
            adds_memory=self.adds_memory[:, nodes],
            boards=Boards(*(each[nodes] for each in self.boards)),
            room=self.room._replace(
                allowed=self.room.allowed[:, nodes], free=self.room.free[nodes]
            ),
            between=self.between.among(nodes),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of pods and of nodes."""
        pods, nodes = self.own_memory.shape
        return pods, nodes

    def alone_s(self, *, least: bool = False) -> Floats:
        """Of each pod on each node without the rest of the batch, s each second, shape (m, n), inf
        where it may not be or has no room. least: without what may shrink when others come."""
        pods, nodes = (each.ravel() for each in np.indices(self.shape))
        nothing = np.zeros(pods.size)
        found = self._waits_s(pods, nodes, nothing, nothing, nothing, least=least)
        fits = (self.room.amounts[:, np.newaxis] <= self.room.free).all(axis=2)
        return np.where(self.room.allowed & fits, found.reshape(self.shape), np.inf)

    def together_s(self, nodes: Ints, chosen: Bools) -> Floats:
        """Of k sets of pods, shape (k, m), each on one node, shape (k,), s each second, shape (k,):
        the sum over its pods, without what they wait for each other; inf where it does not fit."""
        taken = chosen @ self.room.amounts
        fits: Bools = np.all(taken <= self.room.free[nodes], axis=1)
        fits &= (~chosen | self.room.allowed.T[nodes]).all(axis=1)
        rows, pods = np.nonzero(chosen & fits[:, np.newaxis])
        at = nodes[rows]
        weights = chosen.astype(np.float64)
        busy, memory = (
            (weights * adds.T[nodes]).sum(axis=1)[rows] - adds[pods, at]
            for adds in (self.adds_busy, self.adds_memory)
        )
        replicas = (weights @ self.same_service)[rows, pods]
        waits = self._waits_s(pods, at, busy, memory, replicas)
        total = np.bincount(rows, waits, nodes.size)
        return np.where(fits, total, np.inf)

    def total_s(self, at: Ints) -> float:
        """Of a whole plan, s each second; -1 stands for a pod without a node, which waits for
        nothing here."""
        used = np.unique(at[at >= 0])
        total = float(self.together_s(used, at == used[:, np.newaxis]).sum())
        for a, b in self.between.pairs():
            if at[a] >= 0 and at[b] >= 0:
                total += float(self.between.waits_s(a, b)[at[a], at[b]])
        return total

    def each_s(self, at: Ints) -> Floats:
        """Of each pod in a whole plan, s each second, shape (m,), 0 for -1. What two pods wait for
        each other is in both."""
        here = np.flatnonzero(at >= 0)
        nodes = at[here]
        beside = (nodes == nodes[:, np.newaxis]) & ~np.eye(here.size, dtype=np.bool_)
        busy, memory = (
            (beside * adds[here][:, nodes].T).sum(axis=1)
            for adds in (self.adds_busy, self.adds_memory)
        )
        replicas = (beside * self.same_service[np.ix_(here, here)]).sum(axis=1)
        found = np.zeros(at.size)
        found[here] = self._waits_s(here, nodes, busy, memory, replicas)
        for a, b in self.between.pairs():
            if at[a] >= 0 and at[b] >= 0:
                found[[a, b]] += self.between.waits_s(a, b)[at[a], at[b]]
        return found

    def dearer(self, more_ms: Floats) -> "Waits":
        """With so much more for each request, ms, shape (m, n)."""
        others = self.others
        raised = others._replace(value=others.value + more_ms, mean=others.mean + more_ms)
        return replace(self, others=raised)

    def _waits_s(
        self,
        pods: Ints,
        nodes: Ints,
        busy: Floats,
        memory: Floats,
        replicas: Floats,
        *,
        least: bool = False,
    ) -> Floats:
        """Of k pods on k nodes with so much more busy and used, and so many more replicas."""
        boards, at = self.boards, (pods, nodes)
        work = self.work.at(*at)
        alone_error_ms = work.alone_error_ms
        others = Uncertain(*(each[at] for each in self.others))
        worked = work._replace(replicas=work.replicas + replicas).of(
            boards.busy[nodes] + busy,
            boards.busy_error[nodes],
            boards.busy_if_wrong[nodes] + busy,
        )
        terms = [others, worked]
        if self.memory_counts:
            more = memory + self.own_memory[at]
            terms.append(
                over_error(
                    lambda share: restarts_ms(out_of_memory(share)),
                    boards.memory[nodes] + more,
                    boards.memory_error[nodes],
                    boards.memory_if_wrong[nodes] + more,
                )
            )
        if self.caution is None:
            wait_ms = sum(each.value for each in terms)
        else:
            # The deviation shrinks where the slowdown reaches its limit.
            deviations = (
                [others.deviation, alone_error_ms] if least else [each.deviation for each in terms]
            )
            deviation = np.sqrt(sum(each**2 for each in deviations))
            wait_ms = sum(each.mean for each in terms) + self.caution * deviation
        found: Floats = np.minimum(wait_ms, MAX_MS) * self.per_s[pods, 0]
        return found
