"""Draws priorities, budgets and nominated pods, and nodes on which pods are in each other's way."""

from __future__ import annotations

from collections import Counter

from tests.kube.draft import HOST, NAMESPACES, ZONE, Draft, selector
from tests.kube.objects import Object, pod

PRIORITIES = (-5, 0, 0, 0, 10, 10, 20)
# Up to so many pods, Go's sort keeps the order of those that are equally important.
_STABLE = 12


def draw_full_nodes(draft: Draft) -> None:
    """Draw nodes that the pods on them nearly fill, and a pod that finds no room."""
    if any(each["metadata"]["name"].startswith("f") for each in draft.pods):
        return
    sizes = ("250m", "500m", "1")
    for each in draft.nodes:
        amounts = {"cpu": draft.random.choice(("2", "3", "4")), "memory": "8Gi"}
        amounts["pods"] = draft.random.choice(("2", "4", "110", "110"))
        each["status"] |= {"allocatable": amounts, "capacity": amounts}
    for resident in draft.pods:
        _ask(resident, draft.random.choice(sizes))
    for number, each in enumerate(draft.nodes):
        for more in range(draft.random.choice((1, 2, 3))):
            filling = pod(f"f{number}-{more}", labels={"app": draft.random.choice(("web", "db"))})
            filling["spec"]["nodeName"] = each["metadata"]["name"]
            filling["metadata"] |= {"namespace": "default", "uid": f"uid-f{number}-{more}"}
            _ask(filling, draft.random.choice(("500m", "1", "2")))
            draft.pods.append(filling)
    _ask(draft.pod, draft.random.choice(("1", "2", "3", "4")))


def _ask(wanted: Object, cpu: str) -> None:
    wanted["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}


def draw_spread(draft: Draft) -> None:
    """Draw constraints that hold of few nodes, over pods like the one to schedule."""
    constraints = []
    for key in draft.random.sample((ZONE, HOST), draft.random.choice((1, 2))):
        # Of an empty selector the plugin counts no pods, but those that it takes away or adds.
        wanted = (selector(draft) if draft.chance(0.5) else None) or {"matchLabels": {"app": "web"}}
        constraint: Object = {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": wanted,
        }
        if draft.chance(0.2):
            constraint["minDomains"] = draft.random.choice((2, 5))
        constraints.append(constraint)
    draft.pod["spec"]["topologySpreadConstraints"] = constraints
    if draft.chance(0.5):
        draw_full_nodes(draft)


def draw_priorities(draft: Draft) -> None:
    """Draw the priorities of pods, since when they run, budgets, and pods that wait for room."""
    _make_possible(draft)
    draft.pod["spec"]["priority"] = draft.random.choice((5, 15, 15, 100, 100))
    if draft.chance(0.03):
        draft.pod["spec"]["preemptionPolicy"] = "Never"
    priorities = draft.random.choice((PRIORITIES, PRIORITIES, (0,)))
    latest = draft.random.choice((0, 5))
    crowd = Counter(each["spec"]["nodeName"] for each in draft.pods)
    for number, resident in enumerate(draft.pods):
        resident["spec"]["priority"] = draft.random.choice(priorities)
        may_tie = crowd[resident["spec"]["nodeName"]] <= _STABLE
        minute = draft.random.randint(0, latest) if may_tie else number
        resident.setdefault("status", {})["startTime"] = f"2026-01-01T00:{minute:02}:00Z"
    for number in range(draft.random.choice((0, 0, 1, 2, 3))):
        _draw_budget(draft, number)
    if draft.chance(0.3):
        for number in range(draft.random.choice((1, 2))):
            _draw_nominated(draft, number)


def _make_possible(draft: Draft) -> None:
    """Take away what no cluster has, and what the plugin does not count exactly while it takes pods
    away: one port or one exclusive claim of two pods, and ending pods among those to spread."""
    taken: set[tuple[str, int, str]] = set()
    claimed = False
    for resident in draft.pods:
        name = resident["spec"]["nodeName"]
        for container in resident["spec"]["containers"]:
            free = []
            for port in container.get("ports", ()):
                held = (name, port["hostPort"], port["protocol"])
                free += [] if held in taken else [port]
                taken.add(held)
            if "ports" in container:
                container["ports"] = free
        volumes = resident["spec"].get("volumes", [])
        if claimed:
            volumes[:] = [each for each in volumes if each["name"] != "alone"]
        claimed |= any(each["name"] == "alone" for each in volumes)
        if "topologySpreadConstraints" in draft.pod["spec"]:
            resident["metadata"].pop("deletionTimestamp", None)


def _draw_budget(draft: Draft, number: int) -> None:
    wanted = selector(draft) or {"matchLabels": {"app": "web"}}
    status: Object = {
        "observedGeneration": 1,
        "disruptionsAllowed": draft.random.choice((0, 0, 1, 2)),
        "currentHealthy": 3,
        "desiredHealthy": 3,
        "expectedPods": 3,
    }
    if draft.chance(0.2) and draft.pods:
        evicted = draft.random.choice(draft.pods)["metadata"]["name"]
        status["disruptedPods"] = {evicted: "2026-01-01T00:00:00Z"}
    budget = {
        "metadata": {
            "name": f"budget{number}",
            "namespace": draft.random.choice(sorted(NAMESPACES)[:2]),
        },
        "spec": {"selector": wanted, "minAvailable": 1},
        "status": status,
    }
    draft.add("podDisruptionBudgets", budget)


def _draw_nominated(draft: Draft, number: int) -> None:
    waiting = pod(f"w{number}", cpu=draft.random.choice(("500m", "1", "2")), labels={"app": "web"})
    waiting["metadata"] |= {"namespace": "default", "uid": f"uid-w{number}"}
    waiting["spec"]["priority"] = draft.random.choice((0, 5, 15, 100, 200))
    node = draft.random.choice(draft.nodes)["metadata"]["name"]
    waiting["status"] = {"phase": "Pending", "nominatedNodeName": node}
    draft.pods.append(waiting)
