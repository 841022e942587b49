"""Two real controllers on one real cluster, and the faults that tests can inject."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from leadline_controller.cli.unreachable import is_open

from tests.kube.account import applied, login, wait_allowed
from tests.kube.api import Api, ApiError
from tests.kube.control_plane import ControlPlane
from tests.kube.objects import node, pod
from tests.support.mosquitto import Broker, mosquitto
from tests.support.threads import beside
from tests.system.audit import Audit, AuditedRequest, audited_plane
from tests.system.daemons import Daemon, eventually, leadline

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/leadline-controller"
PODS = "/api/v1/namespaces/default/pods"
NODES = [f"board-{number:02}" for number in range(8)]
LEASE_S = 10
CLUSTER = "attic"


@dataclass
class Candidate:
    """One of the two controllers. credential: its name in the audit log."""

    daemon: Daemon
    credential: str
    address: str

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, for example SIGSTOP or SIGCONT."""
        assert self.daemon.pid is not None
        os.kill(self.daemon.pid, number)

    def ask(self, *question: str) -> Any:
        """The command line's answer as JSON."""
        answer = leadline(*question, "-o", "json", "--address", self.address)
        assert (answer.returncode, answer.stderr) == (0, ""), answer
        return json.loads(answer.stdout)


@dataclass
class ControllerPair:
    """Two controllers, their broker, and a control plane with an audit log."""

    plane: ControlPlane
    audit: Audit
    broker: Broker
    candidates: tuple[Candidate, Candidate]
    _etcd: list[psutil.Process] = field(default_factory=list)

    @property
    def api(self) -> Api:
        """The cluster as its administrator sees it."""
        return Api(self.plane.kubeconfig)

    def leader(self) -> Candidate | None:
        """The holder of the Lease: by the audit log, the last one to write it."""
        worked = [write for write in self.audit.lease_writes() if write.worked]
        last = worked[-1] if worked else None
        found = [one for one in self.candidates if last and last.to and one.credential == last.by]
        return found[0] if found else None

    def wait_leader(self, other_than: Candidate | None = None) -> Candidate:
        """Wait until a controller leads, one that is not `other_than`."""
        right = self.candidates if other_than is None else (self.other(other_than),)
        leader = eventually(self.leader, lambda seen: seen in right, "a controller leads")
        assert leader is not None
        return leader

    def other(self, one: Candidate) -> Candidate:
        """The other candidate."""
        first, second = self.candidates
        return second if one is first else first

    def both_run(self) -> tuple[Candidate, Candidate]:
        """Start both if needed, and return the leader and the standby."""
        for one in self.candidates:
            one.daemon.start()
            eventually(partial(_answers, one), bool, "the controller answers")
        leader = self.wait_leader()
        return leader, self.other(leader)

    @contextmanager
    def burst(self, prefix: str, count: int) -> Iterator[None]:
        """Create pods during the block; the end of the block waits for the last one."""

        def create() -> None:
            for number in range(count):
                manifest = pod(f"{prefix}-{number:03}", cpu="10m")
                eventually(partial(self._create, manifest), bool, "the API server answers")

        with beside(create):
            yield

    def wait_some_bound(self, prefix: str, count: int) -> None:
        """Wait until at least `count` pods are bound."""
        eventually(
            lambda: sum(write.worked for write in self.audit.bindings(prefix)),
            lambda bound: bound >= count,
            f"{count} pods {prefix}* are bound",
            every_s=0.01,
        )

    def wait_all_bound(self, prefix: str, count: int) -> dict[str, str]:
        """Wait until all pods are bound, and return pod -> node."""
        return eventually(
            lambda: self._where(prefix),
            lambda where: len(where) == count and all(where.values()),
            f"all {count} pods {prefix}* are bound",
            timeout_s=180,
        )

    def tally(self, prefix: str, where: dict[str, str]) -> Counter[int]:
        """Number of successful bindings -> number of pods. Fails if a pod is not on the node of
        its binding, or is bound without a request for it."""
        bindings = self.audit.bindings(prefix)
        worked = [write for write in bindings if write.worked]
        for write in worked:
            assert where[write.name] == write.to, write
        asked = {(write.name, write.to) for write in bindings}
        assert set(where.items()) <= asked
        by_pod = Counter(write.name for write in worked)
        return Counter(by_pod[name] for name in where)

    def pause_etcd(self) -> None:
        """Suspend the API server's store."""
        for process in psutil.Process(self.plane.pid).children(recursive=True):
            if any(argument.startswith("--data-dir") for argument in process.cmdline()):
                process.suspend()
                self._etcd.append(process)
        assert self._etcd

    def continue_etcd(self) -> None:
        """Resume the store; no error if it runs."""
        while self._etcd:
            self._etcd.pop().resume()

    def renewals(self, one: Candidate) -> list[AuditedRequest]:
        """Its successful writes of the Lease."""
        return [
            write
            for write in self.audit.lease_writes()
            if write.worked and write.by == one.credential
        ]

    def clean(self) -> None:
        """Resume what a test has stopped, and remove its pods."""
        self.continue_etcd()
        for one in self.candidates:
            if one.daemon.pid is not None:
                one.signal(signal.SIGCONT)
        eventually(self._remove_pods, bool, "the pods are removed")

    def _where(self, prefix: str) -> dict[str, str]:
        try:
            items = self.api.get(PODS)["items"]
        except (OSError, ApiError):
            return {}
        named = {item["metadata"]["name"]: item["spec"].get("nodeName", "") for item in items}
        return {name: on for name, on in named.items() if name.startswith(prefix)}

    def _create(self, manifest: dict[str, Any]) -> bool:
        try:
            self.api.create(PODS, manifest)
        except ApiError as error:
            return error.code == 409  # the pod was created, and only the answer was lost
        except OSError:
            return False
        return True

    def _remove_pods(self) -> bool:
        try:
            self.api.delete(PODS)
        except (OSError, ApiError):
            return False
        return True


@contextmanager
def controller_pair(folder: Path, settings: str = "") -> Iterator[ControllerPair]:
    """Two controllers with the rights of the manifests and a token each. settings: more of the
    settings file."""
    with ExitStack() as cleanup:
        plane, audit = cleanup.enter_context(audited_plane(folder))
        broker = cleanup.enter_context(mosquitto())
        admin = Api(plane.kubeconfig)
        cleanup.enter_context(applied(admin))
        for name in NODES:
            admin.add_node(node(name, cpu="64", pods=500, address="192.0.2.1"))
        candidates = [_candidate(folder / name, plane, broker, settings) for name in ("a", "b")]
        built = ControllerPair(plane, audit, broker, (candidates[0], candidates[1]))
        cleanup.callback(built.clean)
        for one in candidates:
            cleanup.callback(one.daemon.stop, signal.SIGKILL)
        yield built


def _candidate(folder: Path, plane: ControlPlane, broker: Broker, settings: str) -> Candidate:
    folder.mkdir()
    admin = Api(plane.kubeconfig)
    # The plane writes its own file again at each start; this one is written from a copy.
    kubeconfig = login(admin, Path(shutil.copy(plane.kubeconfig, folder)), folder / "login")
    wait_allowed(Api(kubeconfig), True, group="", resource="pods", verb="watch")
    address = f"unix:{folder}/api"
    config = folder / "controller.toml"
    config.write_text(
        f'cluster = "{CLUSTER}"\nwarm_up_s = 0\n'
        f'[broker]\nhost = "{broker.host}"\nport = {broker.port}\n'
        f'[kubernetes]\nkubeconfig = "{kubeconfig}"\n[grpc]\naddress = "{address}"\n'
        "[probe]\ninterval_s = 1\nduration_ms = 1000\nttl_ms = 100\n"
        f"link_time_share = 0.1\nbytes_per_day = 1000000000000\n{settings}"
    )
    daemon = Daemon("leadline_controller", config, folder / "log")
    return Candidate(daemon, _credential(kubeconfig), address)


def _credential(kubeconfig: Path) -> str:
    """The token's own name, as the audit log has it."""
    token = json.loads(kubeconfig.read_text())["users"][0]["user"]["token"]
    claims = token.split(".")[1]
    return f"JTI={json.loads(base64.urlsafe_b64decode(claims + '=='))['jti']}"


def _answers(one: Candidate) -> bool:
    return is_open(one.address)
