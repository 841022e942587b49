"""The API server's audit log: who bound which pod, and who held the Lease.

The log does not depend on what the controllers report.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.kube.control_plane import ControlPlane, control_plane, kine
from tests.kube.gobuild import built
from tests.kube.sources import Binaries, Cluster, find_source

_POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Request
  verbs: [create, patch, update, get]
  resources:
  - {group: "", resources: [pods/binding]}
  - {group: coordination.k8s.io, resources: [leases]}
- level: Request
  verbs: [create]
  resources:
  - {group: "", resources: [pods]}
  - {group: events.k8s.io, resources: [events]}
- level: Metadata
  verbs: [delete]
  resources:
  - {group: "", resources: [pods]}
- level: None
"""
_CREDENTIAL = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True)
class AuditedRequest:
    """A request for a binding, to delete a pod, or to read or write the Lease."""

    name: str  # the pod, empty for the Lease
    to: str  # the node, or the holder; empty for a deletion
    by: str  # the client's credential
    code: int
    # By the API server's clock.
    received_s: float
    done_s: float

    @property
    def worked(self) -> bool:
        """Whether the server answered with success."""
        return 200 <= self.code < 300


class Audit:
    """The requests in the log so far; each call reads the new lines."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset = 0
        self._bindings: list[AuditedRequest] = []
        self._lease_writes: list[AuditedRequest] = []
        self._lease_reads: list[AuditedRequest] = []
        self._created: dict[str, float] = {}
        self._deletions: list[AuditedRequest] = []
        self._told: dict[str, float] = {}

    def created(self, prefix: str = "") -> dict[str, float]:
        """Pod -> time of its creation, of the pods with this prefix."""
        self._read_new_lines()
        return {name: at_s for name, at_s in self._created.items() if name.startswith(prefix)}

    def bindings(self, prefix: str = "") -> list[AuditedRequest]:
        """The requests to bind pods with this prefix, in the order of their ends."""
        self._read_new_lines()
        return [write for write in self._bindings if write.name.startswith(prefix)]

    def told(self, prefix: str = "") -> dict[str, float]:
        """Pod -> time when the event that says where it was bound was stored, of the pods with this
        prefix."""
        self._read_new_lines()
        return {name: at_s for name, at_s in self._told.items() if name.startswith(prefix)}

    def deletions(self, prefix: str = "") -> list[AuditedRequest]:
        """The requests to delete one of the pods with this prefix, in the order of their ends."""
        self._read_new_lines()
        return [each for each in self._deletions if each.name.startswith(prefix)]

    def lease_writes(self) -> list[AuditedRequest]:
        """The writes of the Lease, in the order of their ends."""
        self._read_new_lines()
        return list(self._lease_writes)

    def lease_reads(self) -> list[AuditedRequest]:
        """The reads of the Lease."""
        self._read_new_lines()
        return list(self._lease_reads)

    def _read_new_lines(self) -> None:
        if not self._file.exists():
            return
        with self._file.open("rb") as log:
            log.seek(self._offset)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        thing, body = event["objectRef"], event.get("requestObject") or {}
        user = event["user"]
        if not user:
            return  # it ended before it was authenticated, and changed nothing
        is_deletion = event["verb"] == "delete"
        if thing["resource"] == "events":
            if body.get("reason") == "Scheduled" and event["responseStatus"]["code"] < 300:
                self._told[body["regarding"]["name"]] = _seconds(event["stageTimestamp"])
            return
        if thing["resource"] == "pods" and "subresource" not in thing and not is_deletion:
            # A ReplicaSet leaves the names of its pods to the server.
            self._created[body["metadata"].get("name", "")] = _seconds(event["stageTimestamp"])
            return
        is_lease = thing["resource"] == "leases"
        if is_lease and thing["name"] != "leadline-controller":
            return
        credential = user.get("extra", {}).get(_CREDENTIAL, [user["username"]])
        # The body is missing where the server refused before it had read it.
        to = body.get("spec", {}).get("holderIdentity")
        if not is_lease:
            to = body.get("target", {}).get("name")
        write = AuditedRequest(
            name="" if is_lease else thing["name"],
            to=to or "",
            by=credential[0],
            code=event["responseStatus"]["code"],
            received_s=_seconds(event["requestReceivedTimestamp"]),
            done_s=_seconds(event["stageTimestamp"]),
        )
        if event["verb"] == "get":
            self._lease_reads.append(write)
        elif is_deletion:
            self._deletions.append(write)
        else:
            (self._lease_writes if is_lease else self._bindings).append(write)


def bound_without_lease(
    bindings: Iterable[AuditedRequest], leases: Iterable[AuditedRequest], duration_s: float
) -> list[AuditedRequest]:
    """The successful bindings of a client that did not hold the Lease.

    A binding counts from its arrival at the server, and the end of a lease from the end of the
    request. So a controller that held the Lease when it sent the binding is never listed.
    """
    held = [write for write in leases if write.worked]
    return [each for each in bindings if each.worked and not _had_lease(each, held, duration_s)]


def _had_lease(binding: AuditedRequest, held: list[AuditedRequest], duration_s: float) -> bool:
    at_s = binding.received_s
    own = [each for each in held if each.by == binding.by and each.to and each.received_s <= at_s]
    if not own:
        return False
    last = max(own, key=lambda write: write.received_s)
    ended = any(
        last.done_s < each.done_s <= at_s and (each.by != binding.by or not each.to)
        for each in held
    )
    return not ended and at_s <= last.received_s + duration_s


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


# Takes etcd's flags, and keeps the data in kine.
_KINE = """
for flag; do
  case $flag in
    --data-dir=*) folder=${flag#*=} ;;
    --listen-client-urls=http:*) address=${flag#*=http:} ;;
  esac
done
mkdir -p "$folder"
store="sqlite://$folder/state.db?_journal=WAL&cache=shared&_busy_timeout=30000&_txlock=immediate"
set -- --endpoint "$store" --listen-address "tcp:$address" --metrics-bind-address 0
"""


@contextmanager
def audited_plane(folder: Path, *more: str) -> Iterator[tuple[ControlPlane, Audit]]:
    """A control plane with an audit log, and etcd, or what LEADLINE_TEST_STORE names, as a process
    of its own. more: flags for the API server."""
    policy, log = folder / "policy.yaml", folder / "audit.log"
    policy.write_text(_POLICY)
    environ = {k: v for k, v in os.environ.items() if k != "LEADLINE_TEST_KUBECONFIG"}
    source = find_source(environ)
    assert not isinstance(source, Cluster)
    prelude = ""
    if isinstance(source, Binaries):
        etcd, apiserver = f'"{source.etcd}"', f'"{source.kube_apiserver}"'
    else:
        program = built(source.go, environ)
        etcd, apiserver = f'"{program}" etcd', f'"{program}" kube-apiserver'
        if store := kine(source.go, environ):
            prelude, etcd = _KINE, f'"{store}"'
    # The default rotates the log at 100 MB, and a reader would miss what follows.
    audit = f'--audit-policy-file="{policy}" --audit-log-path="{log}" --audit-log-maxsize=100000'
    flags = f"{audit} {' '.join(more)}"
    assets = folder / "assets"
    assets.mkdir()
    commands = (("etcd", prelude, etcd), ("kube-apiserver", "", f"{apiserver} {flags}"))
    for name, before, command in commands:
        (assets / name).write_text(f'#!/bin/sh\n{before}exec {command} "$@"\n')
        (assets / name).chmod(0o755)
    (folder / "plane").mkdir()
    with control_plane(folder / "plane", {**environ, "KUBEBUILDER_ASSETS": str(assets)}) as plane:
        yield plane, Audit(log)
