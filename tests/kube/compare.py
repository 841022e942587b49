"""Holds Leadline's verdicts on a case against kube-scheduler's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from leadline_controller.core.manifest import read_node, read_pod
from leadline_controller.core.ports import Listed
from leadline_controller.core.read_resources import READERS
from leadline_controller.core.view import ClusterView
from leadline_controller.filters import FILTERS
from leadline_controller.state.cluster import ClusterState
from leadline_controller.state.telemetry import TelemetryState, TimesToLive

from tests.kube.objects import Object
from tests.kube.oracle import Verdicts

KINDS = {
    "namespaces": "Namespace",
    "pvcs": "PersistentVolumeClaim",
    "pvs": "PersistentVolume",
    "storageClasses": "StorageClass",
    "csiNodes": "CSINode",
    "csiDrivers": "CSIDriver",
    "csiStorageCapacities": "CSIStorageCapacity",
    "volumeAttachments": "VolumeAttachment",
}
_VOLUMES = ("VolumeBinding", "VolumeRestrictions", "NodeVolumeLimits", "VolumeZone")
# What one of kube-scheduler's plugins refuses, one of these of Leadline's has to refuse: a claim
# that can't be used is refused by each of its volume plugins, and once by Leadline.
ANSWERED_BY: Mapping[str, tuple[str, ...]] = {
    **{name: (name,) for name in FILTERS},
    **{name: (name, "VolumeBinding") for name in _VOLUMES},
}


def view_of(case: Object) -> ClusterView:
    """The case's cluster as Leadline would see it."""
    state = ClusterState()
    resources = [
        READERS[kind](manifest, kind)
        for name, kind in KINDS.items()
        for manifest in case.get(name) or ()
    ]
    nodes = tuple(read_node(manifest) for manifest in case["nodes"])
    pods = tuple(read_pod(manifest) for manifest in case.get("pods") or ())
    state.apply(Listed(nodes, pods, tuple(resources)))
    return state.view(TelemetryState(TimesToLive()), 0.0)


def refusals_of(case: Object) -> dict[str, set[str]]:
    """By node, the filters that refuse the case's pod; "Pod" stands for what is wrong with it."""
    view, pod = view_of(case), read_pod(case["pod"])
    found: dict[str, set[str]] = {name: set() for name in view.table.names}
    for name, test in FILTERS.items():
        for node, passes in zip(view.table.names, test(view, pod).passes, strict=True):
            if not passes:
                found[node].add(name)
    for name, wrong in (("SchedulingGates", pod.gated), ("Pod", pod.problem is not None)):
        for refused in found.values() if wrong else ():
            refused.add(name)
    return found


@dataclass
class Tally:
    """Verdicts on nodes, by plugin. `examples` has one line for each kind of disagreement."""

    both_accept: Counter[str] = field(default_factory=Counter)
    both_refuse: Counter[str] = field(default_factory=Counter)
    only_kube_refuses: Counter[str] = field(default_factory=Counter)
    only_leadline_refuses: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def count(self, label: str, verdicts: Verdicts, refusals: Mapping[str, set[str]]) -> None:
        """Count what both say of one case."""
        for node, plugins in verdicts.items():
            for plugin, reason in plugins.items():
                if plugin == "NodeName":
                    continue  # a pod that names its node is assigned, and never decided on
                ours = refusals[node]
                self._note(label, node, plugin, reason, ours)
            overall = next((reason for reason in plugins.values() if reason), None)
            self._note(label, node, "all", overall, refusals[node])

    def _note(self, label: str, node: str, plugin: str, reason: str | None, ours: set[str]) -> None:
        own = plugin in ours
        refused = bool(ours) if plugin == "all" else own or bool(ours & _answers(plugin))
        if reason is None:
            (self.only_leadline_refuses if _own(plugin, ours) else self.both_accept)[plugin] += 1
            if _own(plugin, ours):
                self.examples.setdefault(
                    f"{plugin}: Leadline alone refuses", f"{label} {node}: {ours}"
                )
        elif refused:
            self.both_refuse[plugin] += 1
        else:
            self.only_kube_refuses[plugin] += 1
            self.examples.setdefault(f"{plugin}: kube alone refuses", f"{label} {node}: {reason}")

    def rows(self) -> Iterator[str]:
        """The table, one line a plugin."""
        yield (
            f"{'predicate':22}{'both yes':>10}{'both no':>10}"
            f"{'Leadline alone no':>20}{'kube alone no':>16}"
        )
        for plugin in sorted({*self.both_accept, *self.both_refuse}, key=str.lower):
            alone = self.only_leadline_refuses[plugin]
            share = alone / max(1, alone + self.both_accept[plugin])
            yield (
                f"{plugin:22}{self.both_accept[plugin]:>10}{self.both_refuse[plugin]:>10}"
                f"{f'{alone} ({share:.2%})':>20}{self.only_kube_refuses[plugin]:>16}"
            )


def _answers(plugin: str) -> set[str]:
    return set(ANSWERED_BY.get(plugin, (plugin,)))


def _own(plugin: str, ours: Iterable[str]) -> bool:
    return bool(set(ours)) if plugin == "all" else plugin in ours
