"""Snapshots with one error at a random place."""

import copy
import json
from pathlib import Path
from random import Random
from typing import Any

import yaml

_EXAMPLES = Path(__file__).parents[2] / "docs/examples"
_VALUES: tuple[Any, ...] = (
    *(None, True, "", "x", "x" * 10_000, "\ud800", "\x00", "1e999999999Ki", "-1", "0x_", "n1"),
    *(0, -1, 1.5, 10**300, 10**18, -(10**4000), 1e308, 5e-324),
    *([], {}, [[]], [None], {"": None}, {"\ud800": "\ud800"}, {"name": "n1"}),
    *([{}] * 2, ["x"] * 1000, {f"k{i}": "v" for i in range(1000)}),
)
_STORED = {
    "claims": [
        {
            "metadata": {"name": "data", "annotations": {}},
            "spec": {"storageClassName": "local", "resources": {"requests": {"storage": "1Gi"}}},
        }
    ],
    "storage_classes": [
        {
            "metadata": {"name": "local"},
            "provisioner": "rancher.io/local-path",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
    ],
    "namespaces": [{"metadata": {"name": "default", "labels": {"team": "a"}}}],
}


def seed_documents() -> list[dict[str, Any]]:
    """Good snapshots that use all parts of the format."""
    documents = [yaml.safe_load(path.read_text()) for path in sorted(_EXAMPLES.glob("*.yaml"))]
    rich = copy.deepcopy(documents[0])
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}]},
    }
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    host = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n9"]}
    rich["pods"] += [
        {
            "metadata": {"name": "rich", "labels": {"app": "b"}},
            "spec": {
                "containers": [{"name": "c", "image": "web:1", "ports": [{"hostPort": 80}]}],
                "tolerations": [{"key": "k", "operator": "Exists"}],
                "topologySpreadConstraints": [
                    {**term, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
                ],
                "affinity": {
                    "podAntiAffinity": {required: [term]},
                    "nodeAffinity": {
                        required: {"nodeSelectorTerms": [{"matchExpressions": [host]}]}
                    },
                },
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
            },
        }
    ]
    return [*documents, {**rich, **_STORED}]


def mutation(  # noqa: C901  # one case for each kind
    random: Random, documents: list[dict[str, Any]]
) -> tuple[str, bytes]:
    """What was done to one of the documents, and the file that it became."""
    document = copy.deepcopy(random.choice(documents))
    kind = random.choice(
        ("bits", "cut", "value", "values", "doubled", "deep", "number", "constant", "alias", "yaml")
    )
    if kind in ("value", "values"):
        for _ in range(1 if kind == "value" else random.randint(2, 20)):
            _exchange(random, document)
        return kind, json.dumps(document).encode()
    if kind == "yaml":
        _exchange(random, document)
        return kind, yaml.safe_dump(document, allow_unicode=True).encode(errors="backslashreplace")
    content = bytearray(
        (json.dumps(document) if random.random() < 0.5 else yaml.safe_dump(document)).encode()
    )
    at = random.randrange(len(content))
    match kind:
        case "bits":
            for _ in range(random.choice((1, 1, 1, 10, 100))):
                content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        case "cut":
            del content[at : at + random.choice((1, 10, len(content)))]
        case "doubled":
            part = bytes(content[at : at + random.randint(1, 200)])
            content[at:at] = part * random.choice((1, 1, 100))
        case "deep":
            content[at:at] = random.choice((b"[", b'{"a":', b"- ", b"{a: ")) * random.choice(
                (10, 100, 100_000)
            )
        case "number":
            content[at:at] = random.choice((b"9", b"1:", b"0x", b"1e", b"_", b"1.")) * 5_000
        case "constant":
            content[at:at] = random.choice(
                (b"NaN", b"-Infinity", b".inf", b".nan", b"\\ud800", b"\xed\xa0\x80", b"\x00")
            )
        case _:
            content[at:at] = random.choice(
                (b"&a [*a, *a]", b"<<: *a", b"!!python/object:os.system", b"%TAG ! x\n", b"? ")
            )
    return kind, bytes(content)


def _exchange(random: Random, document: dict[str, Any]) -> None:
    """Put another value to one place in the document."""
    places: list[tuple[Any, Any]] = []
    inside: list[Any] = [document]
    while inside:
        at = inside.pop()
        steps = at.items() if isinstance(at, dict) else enumerate(at)
        for step, value in steps:
            places.append((at, step))
            if isinstance(value, dict | list):
                inside.append(value)
    if not places:
        return
    at, step = random.choice(places)
    if isinstance(at, dict) and random.random() < 0.2:
        at[random.choice(("", "x", "name", "\ud800", "spec"))] = at.pop(step)
    else:
        at[step] = copy.deepcopy(random.choice(_VALUES))
