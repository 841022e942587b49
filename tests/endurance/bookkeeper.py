"""What is true of a cluster's pods, kept apart from the controller's code.

It sees only what crosses the ports: what users create and delete, what the API server accepts, what
a watch delivers, and what a controller asks for. It knows none of the controller's states. Sums,
ports, selectors and labels are compared here anew, by Kubernetes' rules.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

# A pod that a node could run all the while is placed by then: the queue looks again after a minute
# at the latest, and backs off for 10 s at most.
STARVED_S = 100.0
# A pod that stays pending has a reason by then; an event may be lost in an outage, and comes again.
REASON_S = 180.0
# A decision and its request to bind are at most so far apart.
DECIDED_S = 0.5
MOST_LINES = 20


class NodeFacts(NamedTuple):
    """A node as its object says. room: resource name -> base units."""

    room: Mapping[str, int]
    labels: Mapping[str, str] = {}
    is_usable: bool = True  # ready, and not cordoned


class PodFacts(NamedTuple):
    """A pod as its user wrote it. apart: it shares no node with another pod of this name."""

    key: str
    requests: Mapping[str, int]
    selector: Mapping[str, str] = {}
    ports: tuple[int, ...] = ()
    apart: str = ""


@dataclass(slots=True)
class Account:
    """One pod. reason: the last that was written on it. fits: the nodes that could have run it at
    each look since `fits_since_s`."""

    facts: PodFacts
    created_s: float
    node: str | None = None
    bound_s: float = 0.0
    reason: str = ""
    fits: set[str] = field(default_factory=set)
    fits_since_s: float = 0.0


@dataclass(slots=True)
class _OnNode:
    used: Counter[str] = field(default_factory=Counter)
    ports: Counter[int] = field(default_factory=Counter)
    apart: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Delivered:
    """What a controller's watch has shown it: since when each node is not usable, which nodes are,
    and where pods are bound."""

    unusable_s: dict[str, float] = field(default_factory=dict)
    usable: set[str] = field(default_factory=set)
    bound: dict[str, str] = field(default_factory=dict)


class Bookkeeper:
    """Counts in `violations` what must not happen; `lines` has the first of them."""

    def __init__(self) -> None:
        self.violations: Counter[str] = Counter()
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()
        self.nodes: dict[str, NodeFacts] = {}
        self.pods: dict[str, Account] = {}
        self.pending: dict[str, Account] = {}
        self.waits_s: deque[float] = deque(maxlen=10_000)
        self._on: defaultdict[str, _OnNode] = defaultdict(_OnNode)
        self._delivered: dict[str, Delivered] = {}
        self._holder, self._held_until_s = "", 0.0

    def violated(self, what: str, now_s: float, detail: str) -> None:
        """Something happened that must not."""
        self.violations[what] += 1
        if len(self.lines) < MOST_LINES:
            self.lines.append(f"{now_s / 3600:.4f} h: {what}: {detail}")

    # What is true at the API server.

    def node_is(self, name: str, facts: NodeFacts) -> None:
        """A node was added or changed."""
        self.nodes[name] = facts

    def node_gone(self, name: str) -> None:
        """A node was deleted."""
        self.nodes.pop(name, None)

    def created(self, uid: str, facts: PodFacts, now_s: float) -> None:
        """A user created a pod."""
        self.counts["created"] += 1
        self.pods[uid] = self.pending[uid] = Account(facts, now_s)

    def bound(self, uid: str, node: str, now_s: float) -> None:
        """The API server has bound a pod."""
        account = self.pods.get(uid)
        if account is None:
            self.violated("bound a pod that does not exist", now_s, uid)
            return
        facts = account.facts
        if account.node is not None:
            self.violated("bound twice", now_s, f"{facts.key}: {account.node}, then {node}")
            return
        self.counts["bound"] += 1
        self.waits_s.append(now_s - account.created_s)
        account.node, account.bound_s = node, now_s
        self.pending.pop(uid, None)
        where = self.nodes.get(node)
        if where is not None:
            for problem in self._problems(facts, node, where):
                self.violated(problem, now_s, f"{facts.key} on {node}")
        self._count(facts, node, +1)

    def gone(self, uid: str) -> None:
        """A pod was deleted."""
        account = self.pods.pop(uid, None)
        if account is None:
            return
        self.counts["gone, bound" if account.node else "gone, pending"] += 1
        self.pending.pop(uid, None)
        if account.node is not None:
            self._count(account.facts, account.node, -1)

    def lease_written(self, holder: str, duration_s: float, now_s: float) -> None:
        """The API server has accepted a write of the Lease."""
        self._holder, self._held_until_s = holder, now_s + duration_s

    # What a controller is shown, and what it asks for.

    def listed(
        self, controller: str, nodes: Iterable[str], pods: Mapping[str, str], now_s: float
    ) -> None:
        """A controller's watch began anew with this list. nodes: those that are usable. pods: uid
        -> node of those that are bound."""
        before, usable = self._delivered.get(controller, Delivered()), set(nodes)
        unusable_s = dict.fromkeys(before.usable - usable, now_s)
        unusable_s |= {name: s for name, s in before.unusable_s.items() if name not in usable}
        self._delivered[controller] = Delivered(unusable_s, usable, dict(pods))

    def node_shown(self, controller: str, name: str, *, is_usable: bool, now_s: float) -> None:
        """A controller was shown a node; one that was deleted is not usable."""
        seen = self._delivered.setdefault(controller, Delivered())
        if is_usable:
            seen.usable.add(name)
            seen.unusable_s.pop(name, None)
        else:
            seen.usable.discard(name)
            seen.unusable_s.setdefault(name, now_s)

    def pod_shown(self, controller: str, uid: str, node: str | None) -> None:
        """A controller was shown a pod; node: None if it is pending or was deleted."""
        seen = self._delivered.setdefault(controller, Delivered())
        if node is None:
            seen.bound.pop(uid, None)
        else:
            seen.bound[uid] = node

    def asked(self, controller: str, uid: str, node: str, now_s: float) -> None:
        """A controller's request to bind has reached the API server."""
        self.counts["asked to bind"] += 1
        seen = self._delivered.get(controller, Delivered())
        if uid in seen.bound:
            self.violated("asked to bind a pod that it knew to be bound", now_s, uid)
        if node not in seen.usable and now_s - seen.unusable_s.get(node, -1e9) > DECIDED_S:
            self.violated("chose a node that it knew to be unusable", now_s, f"{uid} on {node}")
        if controller != self._holder or now_s >= self._held_until_s:
            holder = self._holder or "nobody"
            self.violated("bound without the Lease", now_s, f"{controller}; {holder} holds it")

    def explained(self, uid: str, reason: str) -> None:
        """A controller has written on a pod why it is pending."""
        if (account := self.pods.get(uid)) is not None and reason:
            account.reason = reason

    def ended(self, controller: str) -> None:
        """A controller is no more; what it was shown counts for nobody else."""
        self._delivered.pop(controller, None)

    # Looks at all of it.

    def look(self, now_s: float, able_since_s: float) -> None:
        """Whether each pending pod has a reason, and none is left out. able_since_s: since when a
        controller leads without an outage; infinity for not now."""
        for account in self.pending.values():
            facts = account.facts
            names = account.fits or self.nodes.keys()
            fits = {
                name
                for name in names
                if (node := self.nodes.get(name)) is not None
                and node.is_usable
                and not any(self._problems(facts, name, node))
            }
            if not account.fits:
                account.fits_since_s = now_s
            account.fits = fits
            if fits and now_s - max(account.fits_since_s, able_since_s) > STARVED_S:
                where = f"{facts.key}: {min(fits)} has had room since {account.fits_since_s:.0f} s"
                self.violated("left out", now_s, where)
                account.fits = set()
            elif not account.reason and now_s - max(account.created_s, able_since_s) > REASON_S:
                self.violated("pending without a reason", now_s, facts.key)
                account.reason = "none"

    def _problems(self, pod: PodFacts, name: str, node: NodeFacts) -> Iterator[str]:
        """Why the pod must not be put on this node beside those that are there."""
        there = self._on[name]
        if any(there.used[key] + pod.requests[key] > node.room.get(key, 0) for key in pod.requests):
            yield "overcommitted"
        if any(node.labels.get(key) != value for key, value in pod.selector.items()):
            yield "selector ignored"
        if any(there.ports[port] for port in pod.ports):
            yield "host port used twice"
        if pod.apart and there.apart[pod.apart]:
            yield "beside a pod that it must be apart from"

    def _count(self, pod: PodFacts, node: str, sign: int) -> None:
        there = self._on[node]
        for key, amount in pod.requests.items():
            there.used[key] += sign * amount
        for port in pod.ports:
            there.ports[port] += sign
        if pod.apart:
            there.apart[pod.apart] += sign
            if not there.apart[pod.apart]:
                del there.apart[pod.apart]


class Allowance(NamedTuple):
    """What bandwidth tests may cost a node or uplink: seconds of its link in an hour and in a day,
    and bytes in a day."""

    hour_s: float
    day_s: float
    day_bytes: float


class LinkLedger:
    """The transfers over one link within a day, and their sums, so that it stays small."""

    def __init__(self) -> None:
        self._day: deque[tuple[float, float, float]] = deque()
        self._hour: deque[tuple[float, float, float]] = deque()
        self.hour_s = self.day_s = self.day_bytes = 0.0

    def add(self, now_s: float, link_s: float, moved_bytes: float) -> None:
        """A transfer has ended."""
        entry = (now_s, link_s, moved_bytes)
        self._day.append(entry)
        self._hour.append(entry)
        self.hour_s += link_s
        self.day_s += link_s
        self.day_bytes += moved_bytes
        while self._hour[0][0] <= now_s - 3600.0:
            self.hour_s -= self._hour.popleft()[1]
        while self._day[0][0] <= now_s - 86_400.0:
            _, old_s, old_bytes = self._day.popleft()
            self.day_s -= old_s
            self.day_bytes -= old_bytes

    def excess(self, allowance: Allowance) -> str:
        """What is beyond the allowance; empty for nothing."""
        for what, spent, allowed in (
            ("s of its link in an hour", self.hour_s, allowance.hour_s),
            ("s of its link in a day", self.day_s, allowance.day_s),
            ("bytes in a day", self.day_bytes, allowance.day_bytes),
        ):
            if spent > allowed * (1 + 1e-9):
                return f"{spent:.3f} of {allowed:.3f} {what}"
        return ""
