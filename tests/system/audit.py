"""What the API server itself says was asked of it: who bound which pod, and who held the Lease.

Its audit log is the one witness that neither of two controllers can deceive.
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

from tests.kube.control_plane import ControlPlane, control_plane
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
- level: None
"""
_CREDENTIAL = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True)
class Write:
    """A binding, or a look at the Lease or a write of it.

    by: the credential with which it was asked. name: the pod, or empty for the Lease. to: the
    node, or the holder. received_s, done_s: by the API server's clock.
    """

    name: str
    to: str
    by: str
    code: int
    received_s: float
    done_s: float

    @property
    def worked(self) -> bool:
        """It took effect, and the server said so."""
        return 200 <= self.code < 300


class Audit:
    """The log so far, read on from where it was read to."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset = 0
        self._bindings: list[Write] = []
        self._leases: list[Write] = []
        self._looks: list[Write] = []
        self._made: dict[str, float] = {}

    def made(self, prefix: str = "") -> dict[str, float]:
        """Pod -> when it was made, of those whose names start so."""
        self._read_on()
        return {name: at_s for name, at_s in self._made.items() if name.startswith(prefix)}

    def bindings(self, prefix: str = "") -> list[Write]:
        """All bindings asked for of pods whose names start so, in the order of their ends."""
        self._read_on()
        return [write for write in self._bindings if write.name.startswith(prefix)]

    def leases(self) -> list[Write]:
        """All writes of the Lease, in the order of their ends."""
        self._read_on()
        return list(self._leases)

    def looks(self) -> list[Write]:
        """All times that the Lease was read."""
        self._read_on()
        return list(self._looks)

    def _read_on(self) -> None:
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
        if thing["resource"] == "pods" and "subresource" not in thing:
            self._made[body["metadata"]["name"]] = _seconds(event["stageTimestamp"])
            return
        is_lease = thing["resource"] == "leases"
        if is_lease and thing["name"] != "leadline-controller":
            return
        credential = event["user"].get("extra", {}).get(_CREDENTIAL, [event["user"]["username"]])
        # The body is missing where the server refused before it had read it.
        to = body.get("spec", {}).get("holderIdentity")
        if not is_lease:
            to = body.get("target", {}).get("name")
        write = Write(
            name="" if is_lease else thing["name"],
            to=to or "",
            by=credential[0],
            code=event["responseStatus"]["code"],
            received_s=_seconds(event["requestReceivedTimestamp"]),
            done_s=_seconds(event["stageTimestamp"]),
        )
        if event["verb"] == "get":
            self._looks.append(write)
        else:
            (self._leases if is_lease else self._bindings).append(write)


def out_of_turn(
    bindings: Iterable[Write], leases: Iterable[Write], duration_s: float
) -> list[Write]:
    """The bindings that were carried out for one who did not hold the Lease, or no longer.

    A binding counts from when the server received it, and what ended a lease from when that was
    done: so nothing is held against a controller that was right when it asked.
    """
    held = [write for write in leases if write.worked]
    return [each for each in bindings if each.worked and not _in_turn(each, held, duration_s)]


def _in_turn(binding: Write, held: list[Write], duration_s: float) -> bool:
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


@contextmanager
def audited_plane(folder: Path, *more: str) -> Iterator[tuple[ControlPlane, Audit]]:
    """A control plane of its own that keeps an audit log, with etcd as a process beside. more:
    flags for the API server."""
    policy, log = folder / "policy.yaml", folder / "audit.log"
    policy.write_text(_POLICY)
    environ = {k: v for k, v in os.environ.items() if k != "LEADLINE_TEST_KUBECONFIG"}
    source = find_source(environ)
    assert not isinstance(source, Cluster)
    if isinstance(source, Binaries):
        etcd, apiserver = f'"{source.etcd}"', f'"{source.kube_apiserver}"'
    else:
        program = built(source.go, environ)
        etcd, apiserver = f'"{program}" etcd', f'"{program}" kube-apiserver'
    # Else it is begun anew at 100 MB, which a reader takes for silence.
    audit = f'--audit-policy-file="{policy}" --audit-log-path="{log}" --audit-log-maxsize=100000'
    flags = f"{audit} {' '.join(more)}"
    assets = folder / "assets"
    assets.mkdir()
    for name, command in (("etcd", etcd), ("kube-apiserver", f"{apiserver} {flags}")):
        (assets / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (assets / name).chmod(0o755)
    (folder / "plane").mkdir()
    with control_plane(folder / "plane", {**environ, "KUBEBUILDER_ASSETS": str(assets)}) as plane:
        yield plane, Audit(log)
