"""Draws, for each Score plugin that goes by preferences, objects between which it has to choose."""

from __future__ import annotations

from tests.kube import draw_pods
from tests.kube.draft import HASH, KEYS, RACK, ZONE, Draft, node_terms, selector
from tests.kube.objects import Object

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _prefer(wanted: Object, kind: str, terms: list[Object]) -> None:
    affinity = wanted["spec"].setdefault("affinity", {}).setdefault(kind, {})
    affinity.setdefault(_PREFERRED, []).extend(terms)


def _weight(draft: Draft) -> int:
    return draft.random.choice((1, 3, 10, 50, 100))


def draw_node_affinity(draft: Draft) -> None:
    if draft.chance(0.3):
        draw_pods.draw_node_affinity(draft)
    if draft.chance(0.9):
        terms = [
            {"weight": _weight(draft), "preference": term}
            for _ in range(draft.random.choice((1, 2, 3)))
            for term in node_terms(draft)
        ]
        _prefer(draft.pod, "nodeAffinity", terms)


def _pod_terms(draft: Draft) -> list[Object]:
    return [
        {"weight": _weight(draft), "podAffinityTerm": draw_pods.affinity_term(draft)}
        for _ in range(draft.random.choice((1, 1, 2)))
    ]


def draw_affinity(draft: Draft) -> None:
    if draft.chance(0.3):
        draw_pods.draw_affinity(draft)
    for resident in draft.pods:
        for kind in ("podAffinity", "podAntiAffinity"):
            if draft.chance(0.25):
                _prefer(resident, kind, _pod_terms(draft))
        if draft.chance(0.2):
            draw_pods.require(resident, "podAffinity", [draw_pods.affinity_term(draft)])
    for kind in ("podAffinity", "podAntiAffinity"):
        if draft.chance(0.4):
            _prefer(draft.pod, kind, _pod_terms(draft))


def draw_taints(draft: Draft) -> None:
    draw_pods.draw_taints(draft)
    for each in draft.nodes:
        kept = [t for t in each["spec"]["taints"] if draft.chance(0.4)]
        soft = {t["key"] for t in kept if t["effect"] == "PreferNoSchedule"}
        kept += [
            {"key": key, "effect": "PreferNoSchedule", "value": draft.random.choice("xy")}
            for key in "abc"
            if key not in soft and draft.chance(0.4)
        ]
        each["spec"]["taints"] = kept


def draw_spread(draft: Draft) -> None:
    """Constraints of the pod's own, or peers for the default ones."""
    for each in draft.nodes:  # so that nodes lack keys, and a label may be empty
        if draft.chance(0.05):
            each["metadata"]["labels"].pop("kubernetes.io/hostname")
        if draft.chance(0.1):
            each["metadata"]["labels"][draft.random.choice((ZONE, RACK))] = ""
    if draft.chance(0.5):
        _own_constraints(draft)
    else:
        _peers(draft)
    if draft.chance(0.4):
        draw_pods.draw_node_affinity(draft)
    if draft.chance(0.5):
        draw_pods.draw_taints(draft)


def _own_constraints(draft: Draft) -> None:
    draw_pods.draw_spread(draft)
    constraints = draft.pod["spec"]["topologySpreadConstraints"]
    for constraint in constraints:
        if draft.chance(0.8):
            constraint.pop("minDomains", None)
            constraint["whenUnsatisfiable"] = "ScheduleAnyway"
            constraint["maxSkew"] = draft.random.choice((1, 2, 5))
    kept = {(c["topologyKey"], c["whenUnsatisfiable"]): c for c in constraints}
    more = draft.random.choice(KEYS)
    if draft.chance(0.3) and (more, "ScheduleAnyway") not in kept:
        made = {"maxSkew": 1, "topologyKey": more, "whenUnsatisfiable": "ScheduleAnyway"}
        kept[more, "ScheduleAnyway"] = {**made, "labelSelector": selector(draft) or {}}
    draft.pod["spec"]["topologySpreadConstraints"] = list(kept.values())


_API_VERSIONS = {
    "ReplicationController": "v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
}


def _peers(draft: Draft) -> None:
    labels = draft.pod["metadata"]["labels"]
    for i in range(draft.random.choice((0, 1, 1, 2))):
        chosen = {k: v for k, v in labels.items() if k != HASH and draft.chance(0.7)}
        if draft.chance(0.2):
            chosen["app"] = draft.random.choice(("web", "db"))
        spec: Object = {"ports": [{"port": 80}], **({"selector": chosen} if chosen else {})}
        name = draft.random.choice(("default", "default", "blue"))
        draft.add("services", {"metadata": {"name": f"s{i}", "namespace": name}, "spec": spec})
    if draft.chance(0.7):
        _owner(draft, labels)


def _owner(draft: Draft, labels: dict[str, str]) -> None:
    kind = draft.random.choice(tuple(_API_VERSIONS))
    version = _API_VERSIONS[kind]
    if draft.chance(0.1):
        version = "example.com/v1"  # another kind of that name
    reference = {"kind": kind, "name": "o", "uid": "u", "apiVersion": version, "controller": True}
    draft.pod["metadata"]["ownerReferences"] = [reference]
    if kind == "DaemonSet" or draft.chance(0.1):
        return
    matched = {k: v for k, v in labels.items() if k == "app" or draft.chance(0.6)}
    chosen: Object = {"matchLabels": matched}
    if draft.chance(0.3):
        chosen["matchExpressions"] = [{"key": "app", "operator": "Exists"}]
    template = {"metadata": {"labels": labels}, "spec": draft.pod["spec"]}
    made: Object = {
        "metadata": {"name": "o", "namespace": draft.random.choice(("default",) * 4 + ("blue",))},
        "spec": {"selector": chosen, "template": template},
    }
    if kind == "ReplicationController":
        made["spec"]["selector"] = matched
    if kind == "StatefulSet":
        made["spec"]["serviceName"] = "s0"
    draft.add(
        {"ReplicaSet": "replicaSets", "StatefulSet": "statefulSets"}.get(
            kind, "replicationControllers"
        ),
        made,
    )
