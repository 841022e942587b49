"""Requests of kube-scheduler for a cluster of Raspberry Pis, and excessive ones."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.controller.extender.harness import args, pod_manifest, wide
from tests.kube.objects import Object

CONDITIONS = ("MemoryPressure", "DiskPressure", "PIDPressure")
NODE_INFO = (
    *("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion"),
    *("kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture"),
)
# What a list is made of, or, with a key, an object.
SMALL_VALUES: Mapping[str, bytes] = {
    "repeated keys": b'"a":1',
    "empty keys": b'"":[]',
    "empty lists": b"[]",
    "objects": b'{"a":1}',
    "lists in lists": b"[[[[]]]]",
    "fractions": b"1.5",
    "digits": b"1" * 4000,
    "too many digits": b"1" * 5000,
}


def pi_node(number: int, images: int = 15) -> Object:
    """A k3s agent as its kubelet reports it: 5.4 kB of JSON with 15 images, 11 kB with 50."""
    name = f"pi-{number:05}"
    made = wide(name, 100)
    labels = {f"{group}kubernetes.io/{key}": value for group in ("", "beta.") for key, value in
              (("arch", "arm64"), ("os", "linux"), ("instance-type", "k3s"))}  # fmt: skip
    node_env = {"K3S_DATA_DIR": f"/var/lib/rancher/k3s/data/{'0123456789abcdef' * 4}"}
    made["metadata"] |= {
        "uid": f"3f1b7a2c-1111-4222-8333-{number:012}",
        "resourceVersion": str(1_000_000 + number),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {**made["metadata"]["labels"], **labels},
        "annotations": {
            "flannel.alpha.coreos.com/backend-data": json.dumps({"VNI": 1, "VtepMAC": "aa:bb:cc"}),
            "flannel.alpha.coreos.com/backend-type": "vxlan",
            "flannel.alpha.coreos.com/kube-subnet-manager": "true",
            "flannel.alpha.coreos.com/public-ip": f"10.0.{number // 250}.{number % 250}",
            "k3s.io/hostname": name,
            "k3s.io/node-args": json.dumps(["agent", "--server", "https://10.0.0.5:6443"]),
            "k3s.io/node-config-hash": "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" * 2,
            "k3s.io/node-env": json.dumps(node_env),
            "volumes.kubernetes.io/controller-managed-attach-detach": "true",
        },
        "finalizers": ["wrangler.cattle.io/node"],
    }
    moment = {"lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00"}
    common = {**moment, "reason": "KubeletHasNoPressure", "message": "kubelet has no such pressure"}
    made["status"] |= {
        "conditions": [
            *({"type": kind, "status": "False", **common} for kind in CONDITIONS),
            {"type": "Ready", "status": "True", **common},
        ],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": dict.fromkeys(NODE_INFO, "x" * 30),
        "images": [
            {
                "names": [f"docker.io/library/app-{i}@sha256:{i:064x}", f"docker.io/app-{i}:1.2"],
                "sizeBytes": 10_000_000 + i,
            }
            for i in range(images)
        ],
    }
    return made


def whole_question(nodes: int, images: int = 15) -> bytes:
    """A request with this many whole nodes (nodeCacheCapable: false)."""
    return args(pod_manifest("whole"), nodes=[pi_node(i, images) for i in range(nodes)])


def of_labels(size: int) -> bytes:
    """A question of `size` bytes whose nodes are nothing but labels: what weighs most in memory
    for its length. Each node is as large as an object in Kubernetes can be."""
    nodes: list[Object] = []
    at = 0
    while at < size:
        made = wide(f"pi-{len(nodes):05}", 100)
        made["metadata"]["labels"] |= {f"k{i:06x}": f"v{i:06x}" for i in range(45_000)}
        nodes.append(made)
        at += len(json.dumps(made))
    return args(pod_manifest("labels"), nodes=nodes)


def of_small_values(kind: str, size: int) -> bytes:
    """A question of `size` bytes with a pod of small values, which take the most time for their
    length."""
    value = SMALL_VALUES[kind]
    many = b",".join([value] * (size // (len(value) + 1)))
    inside = b"{" + many + b"}" if b":" in value and value.startswith(b'"') else b"[" + many + b"]"
    pod = json.dumps(pod_manifest("small")).encode()[:-1]
    return b'{"NodeNames":["n1","n2","n3"],"Pod":' + pod + b',"x":' + inside + b"}}"
