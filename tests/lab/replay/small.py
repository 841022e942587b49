"""A recording written by hand: what a controller of a few boards would have recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import floor

from leadline_controller.framework.model import CPU, MEMORY, PODS, Layer, Node, Pod
from leadline_controller.framework.ports import (
    ClusterChange,
    ImagePull,
    NodeChanged,
    PodChanged,
    PodDeleted,
    Relisted,
)
from leadline_controller.history.recorded import (
    Began,
    Changed,
    Decided,
    Entry,
    Learnt,
    Pulled,
    Recorded,
)
from leadline_controller.telemetry.accepted import Agent, Born, Pinged, Reported
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.paths import PingRound
from leadline_controller.telemetry.sequence import Stamp

UNIX_S, BEGAN_S = 1_800_000_000.0, 100.0
GIB = 2**30


def board(name: str, cores: int = 4, gib: int = 4, **fields: object) -> Node:
    amounts = {CPU: cores * 1000, MEMORY: gib * GIB, PODS: 110}
    return Node(name, amounts, **fields)  # type: ignore[arg-type]


def web(name: str, cpu: int = 500, app: str = "web", **fields: object) -> Pod:
    requests = {CPU: cpu, MEMORY: 64 * 2**20, PODS: 1}
    return Pod("default", name, f"uid-{name}", requests, labels={"app": app}, **fields)  # type: ignore[arg-type]


class Recording:
    """Entries in the order in which they are told. at_s: seconds since it began."""

    def __init__(self, nodes: Sequence[Node], strategy: str = "kube-default", **began: object):
        self.entries: list[Entry] = []
        self.put(0.0, Began(UNIX_S, "test", "c", strategy, {}, 7, **began))  # type: ignore[arg-type]
        self.change(0.0, Relisted(tuple(nodes), ()))
        for node in nodes:
            agent = Agent(node.name, interval_s=10, hardware_model="a board")
            self.put(0.0, Born(agent, self._stamp(0.0)))

    def put(self, at_s: float, what: Recorded) -> None:
        self.entries.append(Entry(BEGAN_S + at_s, what))

    def change(self, at_s: float, change: ClusterChange) -> None:
        self.put(at_s, Changed(change))

    def node(self, at_s: float, node: Node) -> None:
        self.change(at_s, NodeChanged(node))

    def report(self, at_s: float, node: str, cpu_percent: float = 5.0, **values: float) -> None:
        reading = BoardReading({"cpu_percent": cpu_percent, "memory_percent": 20.0, **values})
        self.put(at_s, Reported(node, self._stamp(at_s), reading))

    def ping(self, at_s: float, node: str, rtts_ms: Mapping[str, float]) -> None:
        rounds = {peer: PingRound(rtt_ms, 2, 2) for peer, rtt_ms in rtts_ms.items()}
        self.put(at_s, Pinged(node, self._stamp(at_s), rounds))

    def layers(self, image: str, *layers: Layer) -> None:
        self.put(0.0, Learnt(f"docker.io/library/{image}", f"{image}@sha256:0", {"": layers}))

    def pull(self, at_s: float, node: str, pod: Pod, took_s: float, size_mb: float) -> None:
        """It ends at that time."""
        image = f"docker.io/library/{pod.images[0]}"
        self.put(at_s - took_s, Pulled(ImagePull(node, pod.uid, image)))
        self.put(at_s, Pulled(ImagePull(node, pod.uid, image, took_s, size_mb)))

    def life(
        self,
        pod: Pod,
        node: str | None,
        at_s: float,
        ready_s: float | None = None,
        ended_s: float | None = None,
    ) -> list[tuple[float, Recorded]]:
        """A pod comes, is decided on, is ready and ends. The entries are to be put in order."""
        found: list[tuple[float, Recorded]] = [(at_s, Changed(PodChanged(pod)))]
        found.append((at_s, Decided(pod.uid, pod.key, node)))
        shown = pod
        if node is not None:
            bound_s = float(floor(UNIX_S + at_s))
            shown = replace(pod, node_name=node, bound_s=bound_s, awaited_images=pod.images)
            found.append((at_s, Changed(PodChanged(shown))))
        if ready_s is not None:
            runs_s = float(floor(UNIX_S + ready_s))
            shown = replace(shown, ready=True, runs_s=runs_s, awaited_images=())
            found.append((ready_s, Changed(PodChanged(shown))))
        if ended_s is not None:
            found.append((ended_s, Changed(PodDeleted(shown))))
        return found

    def put_in_order(self, told: Sequence[tuple[float, Recorded]]) -> None:
        for at_s, what in sorted(told, key=lambda each: each[0]):
            self.put(at_s, what)

    def end(self, at_s: float, node: str) -> list[Entry]:
        """A last report shows how long it is. All entries, in order of time."""
        self.report(at_s, node)
        return [
            _numbered(entry, number)
            for number, entry in enumerate(sorted(self.entries, key=lambda entry: entry.at_s), 1)
        ]

    def _stamp(self, at_s: float) -> Stamp:
        return Stamp(bytes(16), 1, 0, 0, BEGAN_S + at_s)


def _numbered(entry: Entry, number: int) -> Entry:
    """With a stamp that is later than all before it."""
    what = entry.what
    if not isinstance(what, (Born, Reported, Pinged)):
        return entry
    stamp = replace(what.stamp, sequence=number, measured_boot_ms=number)
    return Entry(entry.at_s, replace(what, stamp=stamp))
