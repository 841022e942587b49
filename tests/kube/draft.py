"""A case for the oracle under construction: a small random cluster of ordinary nodes and pods, and
the helpers of the predicates' generators."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tests.kube.objects import Object, node, pod

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
RACK = "example.com/rack"
GPU = "example.com/gpu"
HASH = "pod-template-hash"
NAMESPACES = {"default": {}, "blue": {"team": "blue"}, "red": {"team": "red", "old": "yes"}}
KEYS = (ZONE, ZONE, HOST, RACK)


@dataclass
class Draft:
    """A case under construction. `pod` is the one to schedule."""

    random: Random
    nodes: list[Object] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    pod: Object = field(default_factory=dict)
    more: dict[str, list[Object]] = field(default_factory=dict)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def add(self, kind: str, *objects: Object) -> None:
        self.more.setdefault(kind, []).extend(objects)

    def case(self) -> Object:
        namespaces = [{"metadata": {"name": n, "labels": la}} for n, la in NAMESPACES.items()]
        basic = {"nodes": self.nodes, "pods": self.pods, "pod": self.pod}
        return {**basic, "namespaces": namespaces, **self.more}


def draw_nodes(draft: Draft) -> None:
    """Draw nodes with resources for all pods, and labels that some of them share."""
    for i in range(draft.random.randint(2, 8)):
        labels = {}
        if draft.chance(0.85):
            labels[ZONE] = draft.random.choice("abc")
        if draft.chance(0.6):
            labels[RACK] = draft.random.choice(("r1", "r2"))
        if draft.chance(0.5):
            labels["cores"] = draft.random.choice(("2", "4", "8", "many"))
        if draft.chance(0.5):
            labels["disk"] = draft.random.choice(("ssd", "sd"))
        draft.nodes.append(node(f"n{i}", cpu="8", memory="8Gi", labels=labels))


def _labels(draft: Draft) -> dict[str, str]:
    labels = {"app": draft.random.choice(("web", "db", "cache"))}
    if draft.chance(0.5):
        labels["tier"] = draft.random.choice(("front", "back"))
    if draft.chance(0.4):
        labels[HASH] = draft.random.choice(("1", "2"))
    return labels


def draw_pods(draft: Draft, crowded: bool) -> None:
    """Draw the pod to schedule and the assigned pods: a few, or many when `crowded`."""
    for i in range(draft.random.choice((4, 8, 12, 16) if crowded else (0, 1, 2, 4, 8))):
        resident = pod(f"r{i}", cpu="100m", labels=_labels(draft))
        resident["spec"]["nodeName"] = draft.random.choice(draft.nodes)["metadata"]["name"]
        resident["metadata"]["namespace"] = draft.random.choice(("default", "default", "blue"))
        resident["metadata"]["uid"] = f"uid-r{i}"
        if draft.chance(0.15):
            resident["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
            resident["metadata"]["finalizers"] = ["example.com/wait"]
        if draft.chance(0.05):
            resident["status"] = {"phase": draft.random.choice(("Succeeded", "Failed"))}
        if draft.chance(0.03):
            resident["spec"]["nodeName"] = "gone"
        draft.pods.append(resident)
    draft.pod = pod("p", cpu="100m", labels=_labels(draft))
    draft.pod["metadata"] |= {"namespace": "default", "uid": "uid-p"}


def _expression(draft: Draft) -> Object:
    key = draft.random.choice((ZONE, RACK, "cores", "disk", "absent"))
    operator = draft.random.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    values = {ZONE: "abc", RACK: ("r1", "r2"), "disk": ("ssd", "sd")}.get(key, ("2", "4", "8"))
    if operator in ("Gt", "Lt"):
        return {"key": key, "operator": operator, "values": [draft.random.choice("147")]}
    if operator in ("In", "NotIn"):
        drawn = draft.random.sample(list(values), draft.random.randint(1, len(values)))
        return {"key": key, "operator": operator, "values": drawn}
    return {"key": key, "operator": operator}


def node_terms(draft: Draft) -> list[Object]:
    """Draw node selector terms, of labels and sometimes of a name."""
    terms = []
    for _ in range(draft.random.choice((1, 1, 2))):
        term: Object = {}
        if draft.chance(0.9):
            term["matchExpressions"] = [
                _expression(draft) for _ in range(draft.random.choice((1, 1, 2)))
            ]
        if draft.chance(0.15):
            name = draft.random.choice(draft.nodes)["metadata"]["name"]
            operator = draft.random.choice(("In", "NotIn"))
            term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [name]}]
        terms.append(term)
    return terms


def selector(draft: Draft) -> Object | None:
    """Draw a label selector of pods; None now and then."""
    if draft.chance(0.05):
        return None
    drawn: Object = {}
    if draft.chance(0.7):
        drawn["matchLabels"] = {"app": draft.random.choice(("web", "db"))}
    if draft.chance(0.3):
        operator = draft.random.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        values = {"values": ["front"]} if operator in ("In", "NotIn") else {}
        drawn["matchExpressions"] = [{"key": "tier", "operator": operator, **values}]
    return drawn
