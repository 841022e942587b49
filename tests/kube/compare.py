"""Compares Leadline's filter results for generated cases with kube-scheduler's, node by node.

python -m tests.kube.compare 3000    # that many cases for each predicate, and the table
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from leadline_controller.cluster.state import ClusterState
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.ports import Relisted
from leadline_controller.framework.view import ClusterView
from leadline_controller.kubeobjects.cluster_objects import READERS
from leadline_controller.kubeobjects.manifest import read_node, read_pod
from leadline_controller.telemetry.state import TelemetryState, TimesToLive

from tests.kube.generator import THEMES, made
from tests.kube.objects import Object
from tests.kube.oracle import Oracle, Verdicts

# By node, the filters of Leadline that refuse it, and why.
Refusals = dict[str, dict[str, str]]

KINDS = {
    "namespaces": "Namespace",
    "pvcs": "PersistentVolumeClaim",
    "pvs": "PersistentVolume",
    "storageClasses": "StorageClass",
    "csiNodes": "CSINode",
    "csiDrivers": "CSIDriver",
    "csiStorageCapacities": "CSIStorageCapacity",
    "volumeAttachments": "VolumeAttachment",
    "services": "Service",
    "replicationControllers": "ReplicationController",
    "replicaSets": "ReplicaSet",
    "statefulSets": "StatefulSet",
    "podDisruptionBudgets": "PodDisruptionBudget",
}
_VOLUMES = ("VolumeBinding", "VolumeRestrictions", "NodeVolumeLimits", "VolumeZone")
# A claim that can't be used is refused by each of kube-scheduler's plugins, by Leadline once.
_ANSWERED_BY: Mapping[str, set[str]] = {name: {name, "VolumeBinding"} for name in _VOLUMES}
OVERALL = "all together"


@dataclass(frozen=True)
class Ours:
    """Leadline's result for a case. alike: the filters that accepted all nodes without looking at
    each."""

    refusals: Refusals
    alike: frozenset[str]


def view_of(case: Object, state: ClusterState) -> ClusterView:
    """The view of the case's cluster, which replaces the earlier one in the state."""
    objects = [
        READERS[kind](manifest, kind)
        for name, kind in KINDS.items()
        for manifest in case.get(name) or ()
    ]
    nodes = tuple(read_node(manifest) for manifest in case["nodes"])
    pods = tuple(read_pod(manifest) for manifest in case.get("pods") or ())
    state.apply(Relisted(nodes, pods, tuple(objects)))
    return state.view(TelemetryState(TimesToLive()), 0.0)


def ours_of(case: Object, state: ClusterState) -> Ours:
    """The filters that reject each node for the case's pod; "Pod" for a problem of the pod."""
    view, pod = view_of(case, state), read_pod(case["pod"])
    found: Refusals = {name: {} for name in view.table.names}
    verdicts = {name: test(view, pod) for name, test in FILTERS.items()}
    for name, result in verdicts.items():
        for i, node in enumerate(view.table.names):
            if not result.passes[i]:
                found[node][name] = result.reason(i)
    for name, why in (("SchedulingGates", "gated" if pod.gated else None), ("Pod", pod.problem)):
        for refused in found.values():
            if why is not None:
                refused[name] = why
    shared = FilterResult.all_pass(view).passes
    return Ours(found, frozenset(n for n, v in verdicts.items() if v.passes is shared))


@dataclass
class Tally:
    """Verdicts on nodes, by plugin; `themed` counts only the cases that are about the plugin."""

    both_accept: Counter[str] = field(default_factory=Counter)
    both_refuse: Counter[str] = field(default_factory=Counter)
    leadline_alone: Counter[str] = field(default_factory=Counter)
    themed: Counter[tuple[str, bool]] = field(default_factory=Counter)
    # By filter, its verdicts on cases with a look at the nodes, and without.
    looked: Counter[tuple[str, bool]] = field(default_factory=Counter)
    cases: Counter[str] = field(default_factory=Counter)
    # One line for each verdict that kube-scheduler alone refuses.
    unsafe: list[str] = field(default_factory=list)
    # By plugin, the reasons for which Leadline alone refuses, without the names in them.
    stricter: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def count(self, theme: str, label: str, verdicts: Verdicts, said: Ours) -> None:
        """Count both results for one case."""
        self.cases[theme] += 1
        self.looked.update((name, name not in said.alike) for name in FILTERS)
        for node, plugins in verdicts.items():
            ours = said.refusals[node]
            for plugin, reason in plugins.items():
                if plugin != "NodeName":  # who names a node is on it, and never decided on
                    own = {plugin: ours[plugin]} if plugin in ours else {}
                    answers = _ANSWERED_BY.get(plugin, {plugin}) & ours.keys()
                    self._note(f"{label} {node}", plugin, reason, own, bool(answers))
                if plugin == theme:
                    self.themed[plugin, reason is None] += 1
            refusing = next((reason for reason in plugins.values() if reason is not None), None)
            self._note(f"{label} {node}", OVERALL, refusing, ours, bool(ours))

    def _note(
        self, label: str, plugin: str, reason: str | None, own: Mapping[str, str], answered: bool
    ) -> None:
        if reason is None and own:
            self.leadline_alone[plugin] += 1
            self.stricter[plugin] |= {re.sub(r'"[^"]*"', "...", why) for why in own.values()}
        elif reason is None:
            self.both_accept[plugin] += 1
        elif answered:
            self.both_refuse[plugin] += 1
        else:
            self.unsafe.append(f"{label}: {plugin}: {reason}")

    def rows(self) -> Iterator[str]:
        """The table, one line a plugin."""
        yield _row("predicate", "cases", "both accept", "both refuse", "Leadline alone refuses")
        for plugin in (*sorted({*self.both_accept} - {OVERALL}, key=str.lower), OVERALL):
            alone, accepted = self.leadline_alone[plugin], self.both_accept[plugin]
            cases = self.cases[plugin] or sum(self.cases.values())
            share = f"{alone} ({alone / max(1, alone + accepted):.2%})"
            yield _row(plugin, cases, accepted, self.both_refuse[plugin], share)
        yield f"kube-scheduler alone refuses: {len(self.unsafe)}"


def _row(name: str, *cells: object) -> str:
    return f"{name:22}" + "".join(f"{cell!s:>24}" for cell in cells)


def compared(oracle: Oracle, count: int, start: int = 0) -> tuple[Tally, Tally]:
    """Judge `count` cases of each predicate, as the API server stores their objects, and as
    they were written (which is how a snapshot file has them). The latter one after the other in
    one state: what is remembered of a cluster must play no part in another."""
    stored, written, state = Tally(), Tally(), ClusterState()
    for theme in THEMES:
        for seed in range(start, start + count):
            case, label = made(seed, theme), f"{theme}/{seed}"
            judged = oracle.judge(case)
            stored.count(theme, label, judged.verdicts, ours_of(judged.stored, ClusterState()))
            written.count(theme, label, judged.verdicts, ours_of(case, state))
    return stored, written


def main(count: int) -> None:
    """Print the table of a run over cases that the tests don't have."""
    with Oracle() as oracle:
        stored, written = compared(oracle, count, start=1_000_000)
    print(*stored.rows(), *stored.unsafe, *written.unsafe, sep="\n")
    for plugin, reasons in sorted(stored.stricter.items()):
        print(f"Leadline alone refuses, {plugin}: {'; '.join(sorted(reasons))}")
    sys.exit(bool(stored.unsafe or written.unsafe))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3000)
