"""Recorded hours run again under another strategy, with the controller's own states, cycle and
queue; what boards, kubelets and links would have done is the model of docs/replay.md."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import floor, inf, isinf, isnan

import numpy as np
from leadline_controller.framework.assumed_load import BoardSize
from leadline_controller.framework.cycle import Decision, Rule, feasible_nodes
from leadline_controller.framework.image_layers import full_name, listed_images
from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.ports import (
    ClusterChange,
    ImagePull,
    NodeChanged,
    NodeDeleted,
    PodChanged,
    PodDeleted,
    Relisted,
)
from leadline_controller.framework.view import ClusterView
from leadline_controller.history.recorded import Began, Changed, Decided, Entry, Missed, Pulled
from leadline_controller.scheduling.queue import SchedulingQueue
from leadline_controller.telemetry.accepted import Reported

from leadline_lab.replay.boards import BoardLoad, Stay, left_mbps
from leadline_lab.replay.caveats import caveats
from leadline_lab.replay.kube_scheduler import KubeScheduler, Unstated
from leadline_lab.replay.lives import Life, workload_name
from leadline_lab.replay.outcomes import Outcome, PodOutcome
from leadline_lab.replay.past import Past
from leadline_lab.replay.pulls import Pulls, Waits
from leadline_lab.replay.states import States, recorded_strategy
from leadline_lab.replay.transfers import Transfers

ZONE = "topology.kubernetes.io/zone"
_SAMPLE_EVERY_S = 60.0  # of the round trips to users


@dataclass(slots=True)
class _Placed:
    """What becomes of a pod in this run. Times are those of the recording's clock."""

    life: Life
    pod: Pod  # as the API server would have it now
    node: str | None = None
    bound_s: float | None = None
    ready_s: float | None = None
    ended_s: float | None = None
    pull_s: float | None = None
    # What its node and its user's have left for its data, Mbit/s; None if it has no such.
    mbps: Mapping[str, float] | None = None
    transfer_s: float | None = None
    starting_s: float = 0.0  # from its binding until it is ready, without its pulls
    best_ready_s: float | None = None
    best_rtt_ms: float | None = None
    rtts_ms: list[float] = field(default_factory=list)
    begun: tuple[float, int] = (0.0, 0)  # BoardLoad.short and .reports when it began
    contention: float | None = None


def _shown_after_s(life: Life) -> float:
    """How long after the decision the watch shows a binding."""
    if life.bound_s is None or life.decided_s is None:
        return 0.0
    return max(life.bound_s - life.decided_s, 0.0)


class Run:
    """One run of a past under a rule. name, options: what the outcome calls it."""

    def __init__(
        self, past: Past, rule: Rule, seed: int, name: str, options: Mapping[str, str]
    ) -> None:
        self._past, self._seed, self._name, self._options = past, seed, name, options
        self._states = States(past.began, past.first_s, past.estimate_every_s, past.estimates)
        self._step = self._states.step(rule, seed)
        self._queue = SchedulingQueue()
        self._placed: dict[str, _Placed] = {}
        self._loads: dict[str, BoardLoad] = {}
        self._pulls = Pulls(past)
        self._transfers = Transfers()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._running: dict[str, _Placed] = {}
        # Images that the nodes' statuses have only since a pod of ours pulled them: as recorded,
        # and in this run.
        self._brought: dict[str, set[str]] = {}
        self._pulled: dict[str, dict[str, float]] = {}  # node -> image -> MB
        self._shown: dict[str, Node] = {}  # as recorded
        self._unknown: Counter[str] = Counter()
        self._unstated = Unstated()
        if isinstance(rule.strategy, KubeScheduler):
            counting = replace(rule.strategy, assumed=self._unstated.on_nodes)
            self._step.rule = replace(rule, strategy=counting)

    def run(self) -> Outcome:
        """Let all of it pass."""
        self._at(self._now_s + _SAMPLE_EVERY_S, self._sample)
        for entry in self._past.entries:
            self._until(entry.at_s)
            self._replay(entry)
            self._schedule()
        now_s = self._now_s
        for each in self._running.values():
            self._leave(each, now_s, is_end=False)
        return self._outcome()

    @property
    def _now_s(self) -> float:
        return self._states.clock.now_s()

    @property
    def _unix_s(self) -> float:
        return self._now_s + (self._states.unix_offset_s or 0.0)

    # What happens, and when.

    def _until(self, to_s: float) -> None:
        """Let time pass until then: what is due happens."""
        while True:
            queued_s = self._queue.next_due_s()
            due_s = self._due[0][0] if self._due else inf
            at_s = min(due_s, inf if queued_s is None else queued_s)
            if at_s > to_s:
                return
            self._states.advance(at_s)
            if at_s == due_s:
                heappop(self._due)[2]()
            self._schedule()

    def _at(self, at_s: float, event: Callable[[], None]) -> None:
        heappush(self._due, (at_s, next(self._numbers), event))

    def _replay(self, entry: Entry) -> None:
        """What was recorded happens, but for what the recorded placement caused."""
        match entry.what:
            case Changed(change):
                self._states.advance(entry.at_s)
                self._change(change)
            case Reported(node, stamp, reading):
                load = self._load(node)
                shown = load.as_replayed(reading, stamp.measured_s)
                self._apply(Entry(entry.at_s, Reported(node, stamp, shown)))
            case Pulled(pull) if pull.pod_uid in self._past.lives:
                if pull.took_s is not None:
                    self._brought.setdefault(pull.node, set()).add(full_name(pull.image))
            case Began() | Decided() | Missed():
                pass
            case _:
                self._apply(entry)

    def _apply(self, entry: Entry) -> None:
        self._queue.move_to_active_or_backoff(self._now_s, self._states.apply(entry))

    def _tell(self, change: ClusterChange) -> None:
        """The watch shows this now."""
        match change:
            case PodChanged(pod):
                self._unstated.put(pod)
            case PodDeleted(pod):
                self._unstated.drop(pod.uid)
            case Relisted(pods=pods):
                for pod in pods:
                    self._unstated.put(pod)
            case _:
                pass
        self._apply(Entry(self._now_s, Changed(change)))

    def _change(self, change: ClusterChange) -> None:
        match change:
            case Relisted():
                self._relist(change)
            case NodeChanged(node):
                self._tell(NodeChanged(self._node(node)))
            case NodeDeleted(name):
                for each in [e for e in self._placed.values() if e.node == name]:
                    if each.ended_s is None:
                        self._end(each)
                self._tell(change)
            case PodChanged(pod) if pod.uid in self._past.lives:
                self._show(pod)
            case PodDeleted(pod) if pod.uid in self._past.lives:
                self._gone(pod.uid)
            case _:
                self._tell(change)

    def _relist(self, listed: Relisted) -> None:
        lives = self._past.lives
        ours = [pod for pod in listed.pods if pod.uid in lives]
        for pod in ours:
            self._show(pod, is_listing=True)
        for uid in self._placed.keys() - {pod.uid for pod in ours}:
            self._gone(uid)
        others = [pod for pod in listed.pods if pod.uid not in lives]
        alive = [each.pod for each in self._placed.values() if each.ended_s is None]
        nodes = tuple(self._node(node) for node in listed.nodes)
        self._tell(Relisted(nodes, (*others, *alive), listed.objects))

    # Pods of ours, as recorded.

    def _show(self, pod: Pod, *, is_listing: bool = False) -> None:
        """The recording shows a pod of ours."""
        life = self._past.lives[pod.uid]
        placed = self._placed.get(pod.uid)
        if placed is None:
            placed = self._placed[pod.uid] = _Placed(life, pod)
        elif life.ready_s == self._now_s and life.node is not None:
            stay = Stay(life.ready_s, self._added(life.pod, life.node))
            self._load(life.node).begin(pod.uid, stay, is_replayed=False)
        if placed.bound_s is not None or placed.ended_s is not None or pod.node_name is not None:
            return
        placed.pod = replace(pod, nominated_node=None)
        if not is_listing:
            self._tell(PodChanged(placed.pod))
        if placed.pod.is_pending:
            self._queue.put(placed.pod, self._now_s)
        else:
            self._queue.remove(pod.uid)

    def _gone(self, uid: str) -> None:
        """A pod of ours is gone in the recording."""
        life, placed = self._past.lives[uid], self._placed.get(uid)
        if placed is None:
            return
        if life.node is not None:
            self._load(life.node).end(uid, self._now_s, is_replayed=False)
        if life.bound_s is None and placed.ended_s is None:
            self._end(placed)  # nobody knows how long it would have lived

    # Pods of ours, in this run.

    def _schedule(self) -> None:
        """Decide on all pods that may be placed now, as the scheduler does."""
        if self._now_s < self._past.warm_s:
            return  # it waited for the agents of its nodes
        while (pod := self._queue.pop(self._now_s)) is not None:
            placed = self._placed[pod.uid]
            pod = self._states.cluster.pod(pod.uid) or pod
            view = self._step.view_in_run(pod)
            decision = self._step.decide(view, pod)
            if decision.node is None:
                self._queue.mark_unschedulable(pod.uid, self._now_s, decision.requeue_on)
                continue
            charge = self._step.charge(view, pod, decision.node)
            self._states.cluster.assume(pod, decision.node, decision.volumes(), charge)
            self._queue.remove(pod.uid)
            self._unstated.put(replace(pod, node_name=decision.node))
            self._bind(placed, decision, view)

    def _bind(self, placed: _Placed, decision: Decision, view: ClusterView) -> None:
        node, pod, life, now_s = decision.node, placed.pod, placed.life, self._now_s
        assert node is not None  # noqa: S101  # for the types
        at, waits = view.table.index[node], Waits(self._past, self._pulls, view, life, now_s)
        self._judge(placed, at, decision, view, waits)
        placed.node, placed.bound_s = node, now_s
        wait_s, start_s = float(waits.images_s[at]), float(waits.start_s[at])
        self._unknown["images"] += bool(pod.images) and not waits.knows_images
        self._unknown["speed"] += waits.knows_images and self._past.speed(node) is None
        self._unknown["start"] += isnan(start_s)
        placed.pull_s = wait_s = 0.0 if isnan(wait_s) else wait_s
        placed.starting_s = float(waits.starting_s[at])
        images = waits.pulled(at)
        self._at(now_s + _shown_after_s(life), partial(self._show_bound, placed, tuple(images)))
        if images:
            begin_s = max(self._pulls.take(node, now_s + wait_s), now_s)
            self._pull(placed, images, begin_s, now_s + wait_s - begin_s)
        if life.bound_s is not None and life.ready_s is None and life.ended_s is not None:
            self._at(now_s + life.ended_s - life.bound_s, partial(self._end, placed))
            return  # it never was ready
        ready_s = now_s + wait_s + (0.0 if isnan(start_s) else start_s)
        if start_s == life.start_s and life.ready_s is not None and life.decided_s is not None:
            # In this order, so that what is as it was recorded comes at the very same time.
            ready_s = life.ready_s + (now_s - life.decided_s) + (wait_s - (life.pull_s or 0.0))
        self._at(ready_s, partial(self._ready, placed))

    def _show_bound(self, placed: _Placed, awaited: tuple[str, ...]) -> None:
        """The watch shows where the pod is."""
        if placed.ended_s is None and placed.ready_s is None:
            bound_s: float | None = float(floor(self._unix_s))
            if (shown := placed.life.shown) is not None and shown.bound_s is None:
                bound_s = None  # nor was it in the recording
            placed.pod = replace(
                placed.pod, node_name=placed.node, bound_s=bound_s, awaited_images=awaited
            )
            self._tell(PodChanged(placed.pod))

    def _pull(
        self, placed: _Placed, images: Mapping[str, float], begin_s: float, took_s: float
    ) -> None:
        """The kubelet pulls these one after the other, from then on."""
        whole_mb = sum(images.values())
        for image, mb in images.items():
            share_s = took_s * mb / whole_mb
            self._at(begin_s, partial(self._observe, placed, image, None, mb))
            self._at(begin_s + share_s, partial(self._observe, placed, image, share_s, mb))
            begin_s += share_s

    def _observe(self, placed: _Placed, image: str, took_s: float | None, mb: float) -> None:
        node, name = placed.node, full_name(image)
        if node is None:
            return
        self._apply(Entry(self._now_s, Pulled(ImagePull(node, placed.pod.uid, name, took_s, mb))))
        if took_s is not None:
            self._pulled.setdefault(node, {})[name] = mb
            if (shown := self._shown.get(node)) is not None:
                self._tell(NodeChanged(self._node(shown)))

    def _ready(self, placed: _Placed) -> None:
        if placed.ended_s is not None or placed.node is None:
            return
        node, life, now_s = placed.node, placed.life, self._now_s
        runs_s = float(floor(self._unix_s))
        if life.ready_s is not None and life.shown is not None and life.shown.runs_s is not None:
            runs_s = life.shown.runs_s + floor(now_s - life.ready_s + 0.5)
        digests = self._past.digests
        started = tuple(
            (each, digests.get(full_name(each), full_name(each))) for each in placed.pod.images
        )
        placed.ready_s = now_s
        placed.pod = replace(
            placed.pod,
            node_name=node,
            awaited_images=(),
            started_images=started,
            ready=True,
            runs_s=runs_s,
            starting_s=None if isnan(placed.starting_s) else self._in_whole_s(placed.starting_s),
        )
        self._tell(PodChanged(placed.pod))
        load = self._load(node)
        stay = Stay(now_s, self._added(life.pod, node))
        load.begin(placed.pod.uid, stay, is_replayed=True)
        placed.begun = load.short, load.reports
        self._running[placed.pod.uid] = placed
        self._sample_rtt(placed)
        self._send(placed)
        if life.ended_s is not None and life.ready_s is not None:
            self._at(life.ended_s + (now_s - life.ready_s), partial(self._end, placed))

    def _in_whole_s(self, took_s: float) -> float:
        """What took so long until now, by the API server's times."""
        return float(floor(self._unix_s) - floor(self._unix_s - took_s))

    def _send(self, placed: _Placed) -> None:
        """Its data leave for its user."""
        data_mb, mbps = placed.pod.annotations.data_mb, placed.mbps
        if data_mb is None or mbps is None:
            return
        if len(mbps) == 1 or data_mb == 0:  # its user is on its node
            placed.transfer_s = 0.0
        elif all(each > 0 for each in mbps.values()):
            self._transfers.begin(placed.pod.uid, data_mb, mbps, self._now_s)
            self._await_transfer()

    def _await_transfer(self) -> None:
        if (next_s := self._transfers.next_s()) < inf:
            self._at(next_s, self._receive)

    def _receive(self) -> None:
        """Data may have arrived."""
        if done := self._transfers.done(self._now_s):
            for uid, took_s in done.items():
                self._placed[uid].transfer_s = took_s
            self._await_transfer()

    def _end(self, placed: _Placed) -> None:
        if placed.ended_s is not None:
            return
        uid, placed.ended_s = placed.pod.uid, self._now_s
        if uid in self._running:
            self._leave(placed, self._now_s)
            del self._running[uid]
            self._transfers.drop(uid, self._now_s)
            self._await_transfer()
        self._queue.remove(uid)
        self._tell(PodDeleted(placed.pod))

    def _leave(self, placed: _Placed, now_s: float, *, is_end: bool = True) -> None:
        load = self._load(placed.node or "")
        if is_end:
            load.end(placed.pod.uid, now_s, is_replayed=True)
        short, reports = load.short - placed.begun[0], load.reports - placed.begun[1]
        placed.contention = short / reports if reports else None

    # What is measured of them.

    def _judge(
        self, placed: _Placed, chosen: int, decision: Decision, view: ClusterView, waits: Waits
    ) -> None:
        """What the pod could have had on each node that it fits, and what it will have."""
        nodes, pod = feasible_nodes(view, decision.basis()[1]), placed.pod
        ready_s = (waits.images_s + waits.start_s)[nodes]
        if not np.isnan(ready_s).all():
            age_s = self._now_s - placed.life.created_s
            placed.best_ready_s = age_s + float(np.nanmin(ready_s))
        user = view.user_node(pod)
        if user is None:
            return
        rtts_ms = view.links.rtt_ms_from(user)
        rtts_ms[user] = 0.0
        if not np.isnan(rtts_ms[nodes]).all():
            placed.best_rtt_ms = float(np.nanmin(rtts_ms[nodes]))
        if pod.annotations.data_mb is not None:
            free, capacity = view.bandwidth_free_mbps(), view.bandwidth_capacity_mbps()
            placed.mbps = {
                view.table.names[at]: left_mbps(float(free[at]), float(capacity[at]))
                for at in (user, chosen)
            }

    def _sample(self) -> None:
        for each in self._running.values():
            self._sample_rtt(each)
        self._at(self._now_s + _SAMPLE_EVERY_S, self._sample)

    def _sample_rtt(self, placed: _Placed) -> None:
        user, node = placed.pod.annotations.user_node, placed.node
        if user is None or node is None or user not in self._states.cluster.nodes():
            return
        rtt_ms = 0.0
        if user != node:
            found = self._states.telemetry.rtt_ms(node, user, self._now_s)
            if found is None or isinf(found):
                return
            rtt_ms = found
        placed.rtts_ms.append(rtt_ms)

    def _load(self, node: str) -> BoardLoad:
        load = self._loads.get(node)
        if load is None:
            load = self._loads[node] = BoardLoad()
        return load

    def _added(self, pod: Pod, node: str) -> list[float]:
        """What the pod adds to the board's values, in the order of METRICS."""
        table = self._states.cluster.table
        if node not in table.index:
            return []
        return BoardSize.of(table, table.index[node]).added_by(self._past.expected.of(pod))

    def _node(self, node: Node) -> Node:
        """A node as it would be shown: with the images that it has in this run."""
        self._shown[node.name] = node
        brought, pulled = self._brought.get(node.name, set()), self._pulled.get(node.name, {})
        if not brought and not pulled:
            return node
        gone = {each.layers[0].digest for each in node.images if full_name(each.name) in brought}
        kept = [
            (each.name, each.layers) for each in node.images if each.layers[0].digest not in gone
        ]
        images = [each for each in node.images if (each.name, each.layers) in kept]
        there = {full_name(each.name) for each in images}
        for name, mb in pulled.items():
            if name not in there:
                names = tuple(dict.fromkeys((name, self._past.digests.get(name, name))))
                images += listed_images([(names, round(mb * 1e6))])
        digests = frozenset(layer.digest for image in images for layer in image.layers)
        return replace(node, images=tuple(images), image_layers=digests)

    # What came of it.

    def _outcome(self) -> Outcome:
        past, first_s = self._past, self._past.first_s
        nodes = [node for node in self._shown.values() if not node.unschedulable]

        def since(at_s: float | None) -> float | None:
            return None if at_s is None else at_s - first_s

        pods = tuple(
            PodOutcome(
                pod=each.pod.key,
                workload=workload_name(each.life.pod),
                created_s=each.life.created_s - first_s,
                node=each.node,
                bound_s=since(each.bound_s),
                ready_s=since(each.ready_s),
                ended_s=since(each.ended_s),
                pull_s=each.pull_s,
                user_rtt_ms=sum(each.rtts_ms) / len(each.rtts_ms) if each.rtts_ms else None,
                transfer_s=each.transfer_s,
                contention=each.contention,
                best_ready_s=each.best_ready_s,
                best_rtt_ms=each.best_rtt_ms,
            )
            for each in self._placed.values()
        )
        is_recorded = self._name == past.began.strategy
        is_recorded = is_recorded and recorded_strategy(past.began) == self._step.rule.strategy
        return Outcome(
            self._name,
            self._seed,
            past.length_s,
            pods,
            zones={node.name: node.labels.get(ZONE, "") for node in nodes},
            tiers={node.name: "cloud" if node.tier == "cloud" else "edge" for node in nodes},
            options=self._options,
            caveats=tuple(
                caveats(past, self._step.rule.strategy, self._unknown, self._loads.values())
            ),
            cluster=past.began.cluster,
            began_unix_s=past.began.unix_s,
            is_recorded=is_recorded,
        )
