"""Fakes thousands of nodes with KWOK: they hold their leases, and pods on them run at once.

KWOK needs only the API server. The taint of a new node it leaves alone, so `add_nodes` lifts it.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.kube.api import Api, BulkApi
from tests.kube.control_plane import ControlPlane, ControlPlaneError
from tests.kube.daemon import LOG_LINES, stop, toolchain
from tests.kube.gobuild import installed, print_built
from tests.kube.objects import Object, node
from tests.kube.released import DYING_WITH_PARENT

T = TypeVar("T")

PACKAGE = "sigs.k8s.io/kwok/cmd/kwok"
VERSION = "v0.8.0"
MARK = {"kwok.x-k8s.io/node": "fake"}
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
CALLERS = 8
START_S = 120.0
POLL_S = 0.2


@dataclass(frozen=True)
class Kwok:
    """A running KWOK, and nodes that it plays on `plane`."""

    plane: ControlPlane
    process: subprocess.Popen[bytes]
    log: Path

    def add_nodes(self, nodes: Sequence[Object]) -> None:
        """Make `nodes`, marked as KWOK's, and wait until it holds a lease for each.

        Raises ControlPlaneError where that takes longer than two minutes.
        """
        names = {str(each["metadata"]["name"]) for each in nodes}
        api = BulkApi(self.plane.kubeconfig)
        side_by_side(lambda each: api.add_node(_marked(each)), nodes)
        deadline = time.monotonic() + START_S
        while missing := names - self._leased(api):
            if self.process.poll() is not None or time.monotonic() > deadline:
                last = " | ".join(self.log.read_text().splitlines()[-LOG_LINES:])
                raise ControlPlaneError(f"KWOK plays no {len(missing)} of the nodes: {last}")
            time.sleep(POLL_S)

    def remove_nodes(self, names: Sequence[str]) -> None:
        """Delete the nodes; their leases stay, because nothing here collects garbage."""
        api = BulkApi(self.plane.kubeconfig)
        side_by_side(lambda name: api.delete(f"/api/v1/nodes/{name}"), names)

    def _leased(self, api: Api) -> set[str]:
        leases = api.get(LEASES)["items"]
        return {lease["metadata"]["name"] for lease in leases if lease["spec"].get("renewTime")}


def program(environ: Mapping[str, str] = os.environ) -> Path:
    """KWOK's program, which is installed once; that may take longer than a test."""
    return installed(toolchain(environ), PACKAGE, VERSION, environ)


@contextmanager
def kwok(
    plane: ControlPlane, *, lease_s: int = 40, environ: Mapping[str, str] = os.environ
) -> Iterator[Kwok]:
    """Yield KWOK at work on `plane`; it plays only the nodes that it is given.

    It renews each node's lease four times in `lease_s` seconds, so that 5,000 nodes at the
    kubelet's 40 s cost the API server 500 writes a second.
    """
    binary = program(environ)
    with tempfile.TemporaryDirectory(prefix="leadline-kwok-") as folder:
        stages = Path(folder) / "stages.yaml"
        stages.write_text("\n---\n".join(json.dumps(stage) for stage in STAGES))
        marks = ",".join(f"{key}={value}" for key, value in MARK.items())
        command = [
            *DYING_WITH_PARENT,
            str(binary),
            f"--config={stages}",
            f"--kubeconfig={plane.kubeconfig}",
            f"--manage-nodes-with-annotation-selector={marks}",
            f"--node-lease-duration-seconds={lease_s}",
            # Else it writes a line for every pod and lease.
            "--v=WARN",
        ]
        log = Path(folder) / "kwok.log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            yield Kwok(plane, process, log)
        finally:
            stop(process)


def many_nodes(count: int, prefix: str = "kwok", **rest: Any) -> list[Object]:
    """Return `count` nodes of 4 CPUs; `rest` as for `objects.node`."""
    return [node(f"{prefix}-{index:04d}", **rest) for index in range(count)]


def _marked(node: Object) -> Object:
    annotations = {**node["metadata"].get("annotations", {}), **MARK}
    return {**node, "metadata": {**node["metadata"], "annotations": annotations}}


def side_by_side(call: Callable[[T], object], items: Sequence[T]) -> None:
    """Call `call` with each item, several at a time; raises what the first failed call raised."""
    with ThreadPoolExecutor(CALLERS) as pool:
        for _ in pool.map(call, items):
            pass


def _stage(name: str, kind: str, conditions: Sequence[Object], **then: object) -> Object:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": list(conditions)},
            "next": then,
        },
    }


def _when(key: str, operator: str, *values: str) -> Object:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


RUNNING = """
{{ $now := Now | Quote }}
phase: Running
startTime: {{ $now }}
conditions:
{{ range list "Initialized" "ContainersReady" "Ready" }}
- {type: {{ . }}, status: "True", lastTransitionTime: {{ $now }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  restartCount: 0
  state: {running: {startedAt: {{ $now }}}}
{{ end }}
"""
READY = """
{{ $now := Now | Quote }}
conditions:
- type: Ready
  status: "True"
  reason: KubeletReady
  message: KWOK plays this node
  lastHeartbeatTime: {{ $now }}
  lastTransitionTime: {{ $now }}
"""
DELETED = ".metadata.deletionTimestamp"
NODE_READY = '.status.conditions.[] | select(.type == "Ready") | .status'
STAGES = (
    _stage("node-ready", "Node", [_when(NODE_READY, "NotIn", "True")], statusTemplate=READY),
    _stage(
        "pod-running",
        "Pod",
        [_when(DELETED, "DoesNotExist"), _when(".status.phase", "In", "Pending")],
        statusTemplate=RUNNING,
    ),
    _stage("pod-gone", "Pod", [_when(DELETED, "Exists")], delete=True),
)


if __name__ == "__main__":
    print_built(program)
