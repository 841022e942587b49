"""Texts that cost a careless reader far more than their length."""

import json
from collections.abc import Iterator, Mapping, Sequence

_LEAST = "apiVersion: leadline.dev/v1\nkind: ClusterSnapshot\nnodes: []\n"
_CONTROLLER, _CLI = "leadline_controller", "leadline_controller.cli"


def texts(size: int) -> Iterator[tuple[str, str]]:
    """What it is, and about `size` characters of it."""
    yield "JSON, duplicate names", _object(size)[:-1] + f', "k{size // 12 - 1}": 1}}'
    yield "JSON, one number", f'{{"a": {"9" * size}}}'
    yield "JSON, numbers of 4,000 digits", json.dumps([10**3999] * (size // 4000))
    yield "JSON that breaks at its end", "[" + "1," * (size // 2) + "}"
    yield "JSON, deep", "[" * size
    yield "YAML, 1:1:1", _LEAST + "links: 1" + ":1" * (size // 2)
    yield "YAML, 1:1:1.5", _LEAST + "links: 1" + ":1" * (size // 2) + ".5"
    yield "YAML, one number", _LEAST + "links: " + "9" * size
    yield "YAML, one hexadecimal number", _LEAST + "links: 0x" + "f" * size
    yield "YAML, numbers of 4,000 digits", f"- {'9' * 4000}\n" * (size // 4000)
    yield "YAML, timestamps", "- 2001-01-01 00:00:00.123 +01:00\n" * (size // 33)
    yield "YAML, timestamp with a long fraction", "- 2001-01-01 00:00:00." + "9" * size
    yield (
        "YAML, duplicate names",
        _object(size)[1:-1].replace(", ", "\n") + f'\n"k{size // 12 - 1}": 1\n',
    )
    yield "YAML, merge keys", "<<: [" + "{a: 1}, " * (size // 8) + "]"
    yield "YAML, anchors", "".join(f"- &a{i} 1\n" for i in range(size // 12))
    yield "YAML, empty mappings", "[" + "{}," * (size // 3) + "]"
    yield "YAML, nested to the bound", "[" + ("[" * 60 + "]" * 60 + ",") * (size // 121) + "]"
    yield "YAML, nested beyond it", "- " * (size // 2)
    yield "YAML, %TAG directives", "".join(f"%TAG !{i}! x,\n" for i in range(size // 16)) + "--- a"
    yield "YAML, documents", "---\n" * (size // 4)
    yield "YAML, one long text", _LEAST + "links: " + "x" * size
    yield "YAML, one long name", _LEAST + '? "' + "x" * size + '"\n: 1'


def snapshots_by_the_thousand(size: int) -> Iterator[tuple[str, str]]:
    """Well-formed snapshots, one part of which is there thousands of times."""
    named = range(size // 120)
    node = {"name": "n", "allocatable": {"cpu": "64", "memory": "64Gi", "pods": 100_000}}
    there = {"nodeName": "n"}
    port = {"name": "c", "ports": [{"hostPort": 1}]}
    yield (
        "residents with host ports",
        _snapshot([node], [_pod(i, **there, containers=[port]) for i in named]),
    )
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    yield (
        "residents with claims",
        _snapshot([node], [_pod(i, **there, volumes=[claim]) for i in named]),
    )
    images = [{"name": f"i{i}", "layers": [{"digest": f"d{i}", "size_mb": 1}]} for i in named]
    pods = [_pod(i, **there, containers=[{"name": "c", "image": f"i{i}"}]) for i in named]
    yield "residents with images of their own", _snapshot([node], pods[::2], images=images[::2])
    yield (
        "nodes with resources of their own",
        _snapshot([{"name": f"n{i}", "requested": {f"e.x/r{i}": 1}} for i in named], [_pod(0)]),
    )
    yield (
        "nodes with labels of their own",
        _snapshot([{"name": f"n{i}", "labels": {f"l{i}": "1"}} for i in named], [_pod(0)]),
    )
    taints = [{"key": f"k{i}", "effect": "NoSchedule"} for i in range(size // 60)]
    yield "taints of one node", _snapshot([{"name": "n", "taints": taints}], [_pod(0)])
    attached = [
        {
            "metadata": {"name": f"a{i}"},
            "spec": {"attacher": "d", "nodeName": "n", "source": {}},
        }
        for i in named
    ]
    yield (
        "attachments of one node",
        _snapshot([node], [_pod(0, volumes=[claim])], volume_attachments=attached),
    )
    huge = [{"name": f"n{i}", "allocatable": {"cpu": "1e999999999Ki"}} for i in named]
    yield "quantities 1e999999999Ki", _snapshot(huge, [])
    containers = [
        {"name": "c", "resources": {"requests": {f"e.x/r{i}": 1}}} for i in range(size // 60)
    ]
    yield (
        "containers with resources of their own",
        _snapshot([node], [_pod(0, containers=containers)]),
    )


def numbers_in_toml() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """What it is, the module that reads it, the file, and the command before the file's name."""
    run, up = ("run", "--config"), ("lab", "up", "--spec")
    nines, hexadecimal = "9" * 5000, "0x" + "f" * 50_000
    for name, number in (("5,000 digits", nines), ("50,000 hexadecimal digits", hexadecimal)):
        yield name, _CONTROLLER, f"warm_up_s = {number}\n", run
        yield f"{name} in a port", _CONTROLLER, f"[broker]\nport = {number}\n", run
        options = f'[strategy]\nname = "dacs"\n[strategy.options]\nalpha = {number}\n'
        yield f"{name} in an option", _CONTROLLER, options, run
        yield f"{name} in a rate", _CLI, f'boards = [{{name = "a", rate_mbps = {number}}}]\n', up
        yield f"{name} in a name", _CLI, f"name = {number}\n", up
    yield "deep arrays", _CONTROLLER, f"cluster = {'[' * 100_000}\n", run
    yield "deep arrays", _CLI, f"name = {'[' * 100_000}\n", up
    yield "a long name", _CONTROLLER, f'cluster = "{"x" * 1_000_000}"\n', run
    yield "a long name", _CLI, f'name = "{"x" * 1_000_000}"\n', up
    yield "a long key", _CONTROLLER, f"{'x' * 1_000_000} = 1\n", run
    yield "a long key", _CLI, f"{'x' * 1_000_000} = 1\n", up
    boards = "".join(f'[[boards]]\nname = "b{i}"\n' for i in range(20_000))
    yield "20,000 boards", _CLI, boards, up


def _object(size: int) -> str:
    return "{" + ", ".join(f'"k{i}": 0' for i in range(size // 12)) + "}"


def _snapshot(
    nodes: Sequence[Mapping[str, object]], pods: Sequence[Mapping[str, object]], **more: object
) -> str:
    head = {"apiVersion": "leadline.dev/v1", "kind": "ClusterSnapshot"}
    return json.dumps({**head, "nodes": nodes, "pods": pods, **more})


def _pod(number: int, **spec: object) -> dict[str, object]:
    return {"metadata": {"name": f"p{number}"}, "spec": {"containers": [{"name": "c"}], **spec}}
