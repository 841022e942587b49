"""Draws, for each predicate about nodes and pods, objects that it accepts or rejects."""

from __future__ import annotations

from tests.kube.draft import GPU, HASH, KEYS, NAMESPACES, RACK, ZONE, Draft, node_terms, selector
from tests.kube.objects import Object


def draw_cordons(draft: Draft) -> None:
    for each in draft.nodes:
        each["spec"]["unschedulable"] = draft.chance(0.5)
    if draft.chance(0.3):
        toleration = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
        if draft.chance(0.5):
            toleration["effect"] = draft.random.choice(("NoSchedule", "NoExecute"))
        draft.pod["spec"].setdefault("tolerations", []).append(toleration)


def draw_taints(draft: Draft) -> None:
    effects = ("NoSchedule", "NoExecute", "PreferNoSchedule")
    for each in draft.nodes:
        drawn = {
            (draft.random.choice("ab"), draft.random.choice(effects)): draft.random.choice("xy")
            for _ in range(draft.random.choice((0, 1, 1, 2)))
        }
        each["spec"]["taints"] = [
            {"key": key, "effect": effect, "value": value} for (key, effect), value in drawn.items()
        ]
    tolerations = draft.pod["spec"].setdefault("tolerations", [])
    for _ in range(draft.random.choice((0, 1, 2, 2))):
        toleration = draft.random.choice(
            (
                {"key": "a", "operator": "Equal", "value": "x"},
                {"key": "a", "value": "y"},
                {"key": "b", "operator": "Exists"},
                {"operator": "Exists"},
            )
        )
        effect = {"effect": draft.random.choice(effects)} if draft.chance(0.4) else {}
        tolerations.append({**toleration, **effect})


def draw_node_affinity(draft: Draft) -> None:
    if draft.chance(0.3):
        draft.pod["spec"]["nodeSelector"] = draft.random.choice(
            ({ZONE: "a"}, {"disk": "ssd"}, {RACK: "r1", ZONE: "b"})
        )
    if draft.chance(0.8):
        required = {"nodeSelectorTerms": node_terms(draft)}
        affinity = draft.pod["spec"].setdefault("affinity", {})
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": required}


def draw_ports(draft: Draft) -> None:
    def take(container: Object) -> None:
        drawn = {}
        for _ in range(draft.random.choice((1, 1, 2))):
            port: Object = {
                "hostPort": draft.random.choice((80, 81)),
                "protocol": draft.random.choice(("TCP", "TCP", "UDP")),
            }
            if draft.chance(0.5):
                port["hostIP"] = draft.random.choice(("0.0.0.0", "10.0.0.1", "10.0.0.2"))
            port["containerPort"] = port["hostPort"]
            drawn[port["hostPort"], port["protocol"]] = port
        container["ports"] = list(drawn.values())

    for resident in draft.pods:
        if draft.chance(0.7):
            resident["spec"]["hostNetwork"] = draft.chance(0.2)
            take(resident["spec"]["containers"][0])
    take(draft.pod["spec"]["containers"][0])


def _container(draft: Draft, name: str) -> Object:
    kind = draft.random.choice(("requests", "requests", "requests", "limits"))
    amounts: dict[str, str] = {}
    if draft.chance(0.9):
        amounts["cpu"] = draft.random.choice(("250m", "500m", "1", "2", "0"))
    if draft.chance(0.5):
        amounts["memory"] = draft.random.choice(("256Mi", "512Mi", "1G", "0.5Gi"))
    if draft.chance(0.2):
        amounts["ephemeral-storage"] = draft.random.choice(("1Gi", "2Gi"))
    resources: Object = {kind: amounts}
    if draft.chance(0.15):
        resources.setdefault("limits", {})[GPU] = "1"
    return {"name": name, "image": "test", "resources": resources}


def _demanding(draft: Draft, wanted: Object) -> None:
    spec = wanted["spec"]
    spec["containers"] = [_container(draft, f"c{i}") for i in range(draft.random.choice((1, 1, 2)))]
    if draft.chance(0.4):
        spec["initContainers"] = [
            _container(draft, f"i{i}") | ({"restartPolicy": "Always"} if draft.chance(0.4) else {})
            for i in range(draft.random.choice((1, 2, 3)))
        ]
    if draft.chance(0.2):
        spec |= {"runtimeClassName": "vm", "overhead": {"cpu": "250m", "memory": "64Mi"}}
    if draft.chance(0.2):
        containers = (*spec["containers"], *spec.get("initContainers", ()))
        sums = sum(_cores(each) for each in containers)
        spec["resources"] = {"requests": {"cpu": str(sums + draft.random.choice((0, 1, 2)))}}


def _cores(container: Object) -> int:
    """The container's largest request in whole cores; the pod-level request can't be less."""
    asked = {
        **container["resources"].get("limits", {}),
        **container["resources"].get("requests", {}),
    }
    return 1 if asked.get("cpu", "0").endswith("m") else int(asked.get("cpu", "0"))


def _resize(draft: Draft, resident: Object) -> None:
    """Put the assigned pod in the middle of a resize, of a container or of the pod."""
    sizes = ("250m", "1", "2")
    statuses = []
    for container in resident["spec"]["containers"]:
        status: Object = {
            "name": container["name"],
            "image": "test",
            "imageID": "",
            "ready": True,
            "restartCount": 0,
        }
        if draft.chance(0.8):
            status["allocatedResources"] = {"cpu": draft.random.choice(sizes)}
        if draft.chance(0.8):
            status["resources"] = {"requests": {"cpu": draft.random.choice(sizes)}}
        statuses.append(status)
    resident["status"] = {"phase": "Running", "containerStatuses": statuses}
    if draft.chance(0.5):
        resident["status"]["conditions"] = [
            {
                "type": "PodResizePending",
                "status": "True",
                "reason": draft.random.choice(("Infeasible", "Deferred")),
            }
        ]
    if "resources" in resident["spec"] and draft.chance(0.7):
        resident["status"] |= {
            "allocatedResources": {"cpu": draft.random.choice("1246")},
            "resources": {"requests": {"cpu": draft.random.choice("1246")}},
        }


def draw_resources(draft: Draft) -> None:
    for each in draft.nodes:
        allocatable = {
            "cpu": draft.random.choice(("1", "3", "4500m", "6", "12")),
            "memory": draft.random.choice(("1Gi", "4Gi", "16Gi", "16Gi")),
            "pods": draft.random.choice(("1", "2", "3", "110", "110", "110")),
            "ephemeral-storage": draft.random.choice(("2Gi", "9Gi", "9Gi")),
        }
        if draft.chance(0.5):
            allocatable[GPU] = draft.random.choice(("1", "2"))
        each["status"] |= {"allocatable": allocatable, "capacity": allocatable}
    for resident in draft.pods:
        if draft.chance(0.7):
            _demanding(draft, resident)
            if draft.chance(0.6) and "status" not in resident:
                _resize(draft, resident)
    _demanding(draft, draft.pod)


def draw_features(draft: Draft) -> None:
    feature = "RestartAllContainersOnContainerExits"
    for each in draft.nodes:
        if draft.chance(0.5):
            each["status"]["declaredFeatures"] = [feature, "Something"]
    if draft.chance(0.9):
        rule = {
            "action": "RestartAllContainers",
            "exitCodes": {"operator": "In", "values": [42]},
        }
        draft.pod["spec"]["containers"][0] |= {
            "restartPolicy": "Never",
            "restartPolicyRules": [rule],
        }


def draw_gates(draft: Draft) -> None:
    if draft.chance(0.5):
        draft.pod["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]


def draw_spread(draft: Draft) -> None:
    constraints: dict[tuple[str, str], Object] = {}
    for _ in range(draft.random.choice((1, 1, 2))):
        key = draft.random.choice(KEYS)
        action = draft.random.choice(("DoNotSchedule",) * 4 + ("ScheduleAnyway",))
        constraint: Object = {
            "maxSkew": draft.random.choice((1, 1, 2)),
            "topologyKey": key,
            "whenUnsatisfiable": action,
        }
        if (drawn := selector(draft)) is not None:
            constraint["labelSelector"] = drawn
            if draft.chance(0.3):
                constraint["matchLabelKeys"] = [HASH]
        if action == "DoNotSchedule" and draft.chance(0.3):
            constraint["minDomains"] = draft.random.choice((1, 2, 3, 5))
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if draft.chance(0.5):
                constraint[policy] = draft.random.choice(("Honor", "Honor", "Ignore"))
        constraints[key, action] = constraint
    draft.pod["spec"]["topologySpreadConstraints"] = list(constraints.values())
    if draft.chance(0.4):
        draw_node_affinity(draft)
    if draft.chance(0.5):
        draw_taints(draft)


def affinity_term(draft: Draft) -> Object:
    term: Object = {"topologyKey": draft.random.choice(KEYS)}
    if (drawn := selector(draft)) is not None:
        term["labelSelector"] = drawn
        if draft.chance(0.3):
            term[draft.random.choice(("matchLabelKeys", "mismatchLabelKeys"))] = [HASH]
    if draft.chance(0.2):
        term["namespaces"] = draft.random.sample(sorted(NAMESPACES), draft.random.randint(1, 2))
    if draft.chance(0.25):
        term["namespaceSelector"] = draft.random.choice(
            (
                {},
                {"matchLabels": {"team": "blue"}},
                {"matchLabels": {"team": "none"}},
                {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
                {"matchExpressions": [{"key": "old", "operator": "NotIn", "values": ["yes"]}]},
            )
        )
    return term


def require(wanted: Object, kind: str, terms: list[Object]) -> None:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    wanted["spec"].setdefault("affinity", {})[kind] = required


def draw_affinity(draft: Draft) -> None:
    for resident in draft.pods:
        if draft.chance(0.25):
            require(resident, "podAntiAffinity", [affinity_term(draft)])
    if draft.chance(0.6):
        terms = [affinity_term(draft) for _ in range(draft.random.choice((1, 1, 1, 2)))]
        require(draft.pod, "podAffinity", terms)
    if draft.chance(0.5):
        terms = [affinity_term(draft) for _ in range(draft.random.choice((1, 1, 2)))]
        require(draft.pod, "podAntiAffinity", terms)
