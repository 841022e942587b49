"""Draws, for each predicate about volumes, claims and disks that it accepts or rejects."""

from __future__ import annotations

from tests.kube.draft import HOST, ZONE, Draft, node_terms
from tests.kube.objects import Object

CSI, TIGHT = "csi.example.com", "tight.example.com"
_CLASS = "volume.beta.kubernetes.io/storage-class"
_MODES = (
    ["ReadWriteOnce"],
    ["ReadWriteOnce"],
    ["ReadWriteMany"],
    ["ReadWriteOnce", "ReadOnlyMany"],
)
_SIZES = ("900Mi", "1900Mi", "1900Mi", "2900Mi")
_GOING = {"deletionTimestamp": "2030-01-01T00:00:00Z", "finalizers": ["example.com/wait"]}
_LABELS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")


def draw_claims(draft: Draft) -> None:
    """Claims that are bound, that could take one of the free volumes, or that need a new one."""
    _classes(draft)
    if draft.chance(0.1):
        _rivals(draft)
        return
    kind = draft.random.choice(("static", "static", "bound", "provisioned", "any"))
    count = draft.random.choice((1, 2, 3) if kind == "static" else (1, 1, 2))
    _free_volumes(draft, draft.random.choice((3, 5, 7) if kind == "static" else (0, 1, 2)))
    for i in range(count):
        claim = _claim(draft, f"c{i}", kind)
        _mount(draft, draft.pod, f"v{i}", claim, ephemeral=draft.chance(0.1))


def _rivals(draft: Draft) -> None:
    """Two claims, one of which can take either volume, so that their order matters."""
    reached = {"required": _reached(draft)} if draft.chance(0.5) else None
    for i, app in enumerate(("db", "web")):
        volume = _free_volume(draft, f"rival{i}", f"{2000 + 1000 * i}Mi")
        volume["metadata"]["labels"] = {"app": app}
        volume["spec"] |= {"nodeAffinity": reached} if reached else {}
    choosy = draft.random.choice("01")
    for name, size in zip("01", draft.random.sample(("900Mi", "1900Mi"), 2), strict=True):
        claim = _claim_of(draft, f"c{name}", "static")
        claim["spec"]["accessModes"] = ["ReadWriteOnce"]
        claim["spec"]["resources"]["requests"]["storage"] = size
        if name == choosy:
            claim["spec"]["selector"] = {"matchLabels": {"app": "db"}}
        _mount(draft, draft.pod, f"v{name}", claim)


def _free_volume(draft: Draft, name: str, size: str) -> Object:
    """Add an available volume to the case."""
    volume = {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/data"},
            "storageClassName": "static",
        },
        "status": {"phase": "Available"},
    }
    draft.add("pvs", volume)
    return volume


def draw_zones(draft: Draft) -> None:
    """Bound claims whose volumes have zone labels, of the new kind and of the old."""
    for each in draft.nodes:
        labels = each["metadata"]["labels"]
        if draft.chance(0.2):
            labels.pop(ZONE, None)
        if draft.chance(0.3):
            labels[_LABELS[1]] = draft.random.choice("abc")
        if draft.chance(0.3):
            labels["topology.kubernetes.io/region"] = draft.random.choice(("north", "south"))
    for i in range(draft.random.choice((1, 1, 2))):
        volume = _volume(draft, f"zoned{i}")
        labels = volume["metadata"].setdefault("labels", {})
        zones = draft.random.sample("abc", draft.random.choice((1, 1, 2)))
        labels[draft.random.choice(_LABELS)] = "__".join(zones)
        if draft.chance(0.2):
            labels["topology.kubernetes.io/region"] = "north"
        if draft.chance(0.1):
            labels[_LABELS[0]] = "a____b"
        _mount(draft, draft.pod, f"z{i}", _bound(draft, f"z{i}", volume))


def draw_exclusive(draft: Draft) -> None:
    """Disks without a claim that pods share, and claims for one pod alone."""
    for wanted in (draft.pod, *draft.pods):
        if draft.chance(0.8):
            wanted["spec"].setdefault("volumes", []).append({"name": "x", **_disk(draft)})
    if draft.chance(0.4):
        claim = _bound(draft, "alone", _volume(draft, "alone"))
        claim["spec"]["accessModes"] = [draft.random.choice(("ReadWriteOncePod", "ReadWriteOnce"))]
        _mount(draft, draft.pod, "alone", claim)
        for resident in draft.pods:
            if draft.chance(0.2) and resident["metadata"]["namespace"] == "default":
                _use(resident, "alone", "alone")


def draw_limits(draft: Draft) -> None:
    """Nodes with small volume limits, some of them used already."""
    _classes(draft)
    for each in draft.nodes:
        if draft.chance(0.85):
            draft.add("csiNodes", _csi_node(draft, each["metadata"]["name"]))
    shared = [_bound(draft, f"s{i}", _csi_volume(draft, f"s{i}")) for i in range(4)]
    waiting = [_claim_of(draft, f"w{i}", "wait") for i in range(2)]
    draft.add("pvcs", *shared, *waiting)
    for wanted in (draft.pod, *draft.pods):
        if wanted["metadata"]["namespace"] != "default":
            continue
        for claim in draft.random.sample(shared + waiting, draft.random.choice((0, 1, 2))):
            name = claim["metadata"]["name"]
            _use(wanted, name, name)
        if draft.chance(0.15):
            disk = {"volumeID": f"vol-{draft.random.randint(1, 3)}"}
            volumes = wanted["spec"].setdefault("volumes", [])
            volumes.append({"name": "ebs", "awsElasticBlockStore": disk})
    for i in range(draft.random.choice((0, 1, 2))):
        draft.add("volumeAttachments", _attachment(draft, f"a{i}", shared))
    for resident in draft.pods[:2]:
        if draft.chance(0.25) and resident["metadata"]["namespace"] == "default":
            name = f"own-{resident['metadata']['name']}"
            _mount(draft, resident, name, _claim_of(draft, name, "wait"), ephemeral=True)


def _classes(draft: Draft) -> None:
    later = "WaitForFirstConsumer"
    topologies = [
        {"matchLabelExpressions": [{"key": ZONE, "values": draft.random.sample("abc", 2)}]}
    ]
    for name, provisioner, mode, allowed in (
        ("wait", CSI, later, None),
        ("static", "kubernetes.io/no-provisioner", later, None),
        ("zonal", CSI, later, topologies),
        ("tight", TIGHT, later, None),
        ("now", CSI, "Immediate", None),
    ):
        storage_class = {
            "metadata": {"name": name},
            "provisioner": provisioner,
            "volumeBindingMode": mode,
        }
        draft.add(
            "storageClasses", storage_class | ({"allowedTopologies": allowed} if allowed else {})
        )
    for driver in (CSI, TIGHT):
        draft.add(
            "csiDrivers",
            {"metadata": {"name": driver}, "spec": {"storageCapacity": driver == TIGHT}},
        )
    for i in range(draft.random.choice((1, 2, 3))):
        draft.add("csiStorageCapacities", _capacity(draft, f"cap{i}"))


def _capacity(draft: Draft, name: str) -> Object:
    of = draft.random.choice(("tight", "tight", "tight", "wait"))
    capacity: Object = {"metadata": {"name": name}, "storageClassName": of}
    if draft.chance(0.9):
        capacity["nodeTopology"] = draft.random.choice(
            ({}, {"matchLabels": {ZONE: "a"}}, {"matchLabels": {"disk": "ssd"}})
        )
    if draft.chance(0.9):
        capacity["capacity"] = draft.random.choice(("1Gi", "2Gi", "10Gi"))
    if draft.chance(0.3):
        capacity["maximumVolumeSize"] = draft.random.choice(("1Gi", "2Gi"))
    return capacity


def _volume(draft: Draft, name: str, size: str = "10Gi") -> Object:
    volume: Object = {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": draft.random.choice(_MODES),
            "hostPath": {"path": "/data"},
        },
        "status": {"phase": "Bound"},
    }
    if draft.chance(0.2):
        volume["spec"]["volumeMode"] = draft.random.choice(("Block", "Filesystem"))
    return volume


def _csi_volume(draft: Draft, name: str) -> Object:
    volume = _volume(draft, name)
    del volume["spec"]["hostPath"]
    if draft.chance(0.15):
        volume["spec"]["awsElasticBlockStore"] = {"volumeID": f"vol-{name}"}
    else:
        driver = draft.random.choice((CSI, CSI, TIGHT))
        volume["spec"]["csi"] = {"driver": driver, "volumeHandle": f"handle-{name}"}
    return volume


def _free_volumes(draft: Draft, count: int) -> None:
    owners = draft.random.sample(("c0", "c1", "c2", "other"), 4)
    for i in range(count):
        # All of different sizes, so that exactly one is the smallest.
        volume = _volume(draft, f"free{i}", f"{draft.random.choice((1, 2, 3)) * 1000 + i}Mi")
        spec, metadata = volume["spec"], volume["metadata"]
        spec["storageClassName"] = draft.random.choice(("static", "static", "static", "wait"))
        if draft.chance(0.1):
            spec["storageClassName"] = "now"
            metadata["annotations"] = {_CLASS: "static"}
        metadata["labels"] = {"app": draft.random.choice(("web", "db"))}
        volume["status"]["phase"] = "Available"
        if draft.chance(0.15):
            volume["status"]["phase"] = draft.random.choice(("Pending", "Released"))
        if draft.chance(0.8):
            spec["nodeAffinity"] = {"required": _reached(draft)}
        if draft.chance(0.35) and owners:
            spec["claimRef"] = _owner(draft, owners.pop())
        if draft.chance(0.1):
            metadata |= _GOING
        draft.add("pvs", volume)


def _owner(draft: Draft, claim: str) -> Object:
    owner = {"namespace": "default", "name": claim}
    if draft.chance(0.5):
        owner["uid"] = draft.random.choice((f"uid-{claim}", "uid-else"))
    return owner


def _reached(draft: Draft) -> Object:
    if draft.chance(0.6):
        count = draft.random.choice((1, 2))
        names = [n["metadata"]["name"] for n in draft.random.sample(draft.nodes, count)]
        expression = {"key": HOST, "operator": "In", "values": names}
        return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    terms = [t for t in node_terms(draft) if "matchFields" not in t]
    return {
        "nodeSelectorTerms": terms or [{"matchExpressions": [{"key": ZONE, "operator": "Exists"}]}]
    }


def _claim_of(draft: Draft, name: str, class_name: str | None) -> Object:
    spec: Object = {
        "accessModes": draft.random.choice(_MODES),
        "resources": {"requests": {"storage": draft.random.choice(_SIZES)}},
    }
    if class_name is not None:
        spec["storageClassName"] = class_name
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def _claim(draft: Draft, name: str, kind: str) -> Object:
    """A claim of this kind, in one of the states that it can be in."""
    if kind == "bound" or (kind == "any" and draft.chance(0.3)):
        return _perhaps_bound(draft, name)
    classes = {"static": ("static",) * 5 + ("wait",), "provisioned": ("wait", "zonal", "tight")}
    some = classes.get(kind, ("wait", "static", "zonal", "tight", "now", "", "absent"))
    claim = _claim_of(draft, name, draft.random.choice(some))
    metadata, spec = claim["metadata"], claim["spec"]
    if draft.chance(0.1):
        selected = draft.random.choice(draft.nodes)["metadata"]["name"]
        metadata["annotations"] = {"volume.kubernetes.io/selected-node": selected}
    if draft.chance(0.3):
        spec["selector"] = {"matchLabels": {"app": draft.random.choice(("web", "db"))}}
    if draft.chance(0.1):
        spec["volumeMode"] = "Block"
    if kind == "any" and draft.chance(0.2):
        claim["status"]["phase"] = "Lost"
    if kind == "any" and draft.chance(0.2):
        metadata |= _GOING
    return claim


def _perhaps_bound(draft: Draft, name: str) -> Object:
    volume = _volume(draft, f"of-{name}")
    if draft.chance(0.8):
        volume["spec"]["nodeAffinity"] = {"required": _reached(draft)}
    claim = _bound(draft, name, volume)
    if draft.chance(0.05):
        claim["metadata"].pop("annotations")
    if draft.chance(0.05):
        claim["spec"]["volumeName"] = "nowhere"
    return claim


def _bound(draft: Draft, name: str, volume: Object) -> Object:
    """Add the volume to the case, and return a claim that is bound to it."""
    volume["spec"]["claimRef"] = {"namespace": "default", "name": name, "uid": f"uid-{name}"}
    draft.add("pvs", volume)
    claim = _claim_of(draft, name, "wait")
    claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    claim["spec"]["volumeName"] = volume["metadata"]["name"]
    claim["status"]["phase"] = "Bound"
    return claim


def _mount(
    draft: Draft, wanted: Object, volume: str, claim: Object, *, ephemeral: bool = False
) -> None:
    if not ephemeral:
        _use(wanted, volume, claim["metadata"]["name"])
    else:
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": wanted["metadata"]["name"],
            "uid": draft.random.choice((wanted["metadata"]["uid"],) * 4 + ("uid-else",)),
            "controller": True,
        }
        claim["metadata"] |= {
            "name": f"{wanted['metadata']['name']}-{volume}",
            "ownerReferences": [owner],
        }
        template = {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            }
        }
        volumes = wanted["spec"].setdefault("volumes", [])
        volumes.append({"name": volume, "ephemeral": {"volumeClaimTemplate": template}})
    if draft.chance(0.97):
        draft.add("pvcs", claim)


def _use(wanted: Object, volume: str, claim: str) -> None:
    source = {"name": volume, "persistentVolumeClaim": {"claimName": claim}}
    wanted["spec"].setdefault("volumes", []).append(source)


def _disk(draft: Draft) -> Object:
    read_only = draft.chance(0.5)
    return draft.random.choice(
        (
            {"gcePersistentDisk": {"pdName": "disk", "readOnly": read_only}},
            {"awsElasticBlockStore": {"volumeID": "vol-1", "readOnly": read_only}},
            {
                "iscsi": {
                    "targetPortal": "10.0.0.1:3260",
                    "iqn": draft.random.choice(
                        ("iqn.2001-04.com.example:a", "iqn.2001-04.com.example:b")
                    ),
                    "lun": 0,
                    "readOnly": read_only,
                }
            },
            {
                "rbd": {
                    "monitors": draft.random.sample(("m1", "m2", "m3", "m4"), 2),
                    "image": "image",
                    "readOnly": read_only,
                }
            },
            {"nfs": {"server": "10.0.0.1", "path": "/data"}},
        )
    )


def _csi_node(draft: Draft, name: str) -> Object:
    drivers = []
    for driver in (CSI, TIGHT, "ebs.csi.aws.com"):
        drawn: Object = {"name": driver, "nodeID": name}
        if draft.chance(0.7):
            drawn["allocatable"] = {"count": draft.random.choice((0, 1, 1, 2, 3))}
        drivers.append(drawn)
    return {"metadata": {"name": name}, "spec": {"drivers": drivers}}


def _attachment(draft: Draft, name: str, claims: list[Object]) -> Object:
    claim = draft.random.choice(claims)
    return {
        "metadata": {"name": name},
        "spec": {
            "attacher": draft.random.choice((CSI, TIGHT)),
            "nodeName": draft.random.choice(draft.nodes)["metadata"]["name"],
            "source": {"persistentVolumeName": claim["spec"]["volumeName"]},
        },
        "status": {"attached": True},
    }
