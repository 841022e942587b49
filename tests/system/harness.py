"""All of Leadline on this machine: real broker, agents, API server and controller."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kube.api import Api, ApiError
from tests.kube.control_plane import ControlPlane, control_plane
from tests.kube.objects import Object, node
from tests.support.certificates import Authority, Certificate
from tests.support.ports import free_port
from tests.system.daemons import Daemon, RestartableBroker, eventually, leadline

BOARDS = {"edge-1": "127.0.0.11", "edge-2": "127.0.0.12", "edge-3": "127.0.0.13"}
CLUSTER = "attic"
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


@dataclass
class LeadlineSystem:
    """A broker, control plane, controller and agents. address: of the controller's gRPC API.
    authority: of all at the broker."""

    plane: ControlPlane
    broker: RestartableBroker
    controller: Daemon
    agents: Mapping[str, Daemon]
    address: str
    authority: Authority
    _created: list[str] = field(default_factory=list)

    @property
    def api(self) -> Api:
        """The API with the rights of the administrator."""
        return Api(self.plane.kubeconfig)

    def add_node(self, manifest: Object) -> None:
        """Add a node until the end of the test."""
        self._created.append(f"{NODES}/{manifest['metadata']['name']}")
        self.api.add_node(manifest)

    def add_pod(self, manifest: Object) -> None:
        """Add a pod until the end of the test."""
        self._created.append(f"{PODS}/{manifest['metadata']['name']}")
        self.api.create(PODS, manifest)

    def clean(self) -> None:
        """Remove the nodes and pods that the test added."""
        while self._created:
            with suppress(ApiError):
                self.api.delete(self._created.pop())

    def bindings(self, prefix: str = "") -> dict[str, str | None]:
        """Pod -> its node, of the pods with this prefix."""
        return {
            pod["metadata"]["name"]: pod["spec"].get("nodeName")
            for pod in self.api.get(PODS)["items"]
            if pod["metadata"]["name"].startswith(prefix)
        }

    def wait_bound(self, prefix: str, count: int) -> dict[str, str | None]:
        """Wait until there are `count` pods with this prefix and all are bound."""
        return eventually(
            lambda: self.bindings(prefix),
            lambda bound: len(bound) == count and all(bound.values()),
            f"{count} pods {prefix}* are bound",
        )

    def events(self, pod: str, reason: str = "") -> list[Any]:
        """The events of a pod or node whose reason starts with `reason`."""
        return [
            event
            for event in self.api.get(EVENTS)["items"]
            if event["regarding"].get("name") == pod and event["reason"].startswith(reason)
        ]

    def wait_event(
        self, pod: str, reason: str, matches: Callable[[str], object] = lambda note: True
    ) -> Any:
        """Wait for an event of a pod or node whose note matches, and return it."""

        def found() -> list[Any]:
            return [event for event in self.events(pod, reason) if matches(event["note"])]

        return eventually(found, bool, f"event {reason} on {pod}")[-1]

    def ask(self, *question: str) -> Any:
        """The command line's answer as JSON."""
        answer = leadline(*question, "-o", "json", "--address", self.address)
        assert (answer.returncode, answer.stderr) == (0, ""), answer
        return json.loads(answer.stdout)


@contextmanager
def leadline_system(folder: Path, more_settings: str = "") -> Iterator[LeadlineSystem]:
    """Start all parts in the worst order: the controller without API server and broker, then
    these, then the agents. more_settings: of the controller, in TOML."""
    with ExitStack() as cleanup:
        authority = Authority(folder / "pki")
        broker = RestartableBroker(authority.server("127.0.0.1", "localhost"))
        cleanup.callback(broker.kill)
        (folder / "plane").mkdir()
        plane = cleanup.enter_context(control_plane(folder / "plane"))
        address = f"127.0.0.1:{free_port()}"
        # The plane replaces its own file at each start.
        kubeconfig = Path(shutil.copy(plane.kubeconfig, folder / "kubeconfig"))
        plane.stop()
        config = folder / "controller.toml"
        settings = _controller_toml(broker, authority, kubeconfig, address)
        config.write_text(settings + more_settings)
        controller = Daemon("leadline_controller", config, folder / "controller.log")
        cleanup.callback(controller.stop)
        controller.start()
        controller.wait_said("no broker at")
        controller.wait_said("can't be reached")
        plane.start()
        broker.start()
        agents = {name: _agent(folder, name, broker, authority) for name in BOARDS}
        built = LeadlineSystem(plane, broker, controller, agents, address, authority)
        for name, agent in agents.items():
            cleanup.callback(agent.stop)
            agent.start()
            built.api.add_node(node(name, cpu="4", address=BOARDS[name]))
        yield built


def _agent(folder: Path, name: str, broker: RestartableBroker, authority: Authority) -> Daemon:
    config = folder / f"{name}.toml"
    config.write_text(
        f'node = "{name}"\ncluster = "{CLUSTER}"\nstate_dir = "{folder / name}"\ninterval_s = 1\n'
        f"{_broker_toml(broker, authority.client(name))}"
        f'[probe]\naddress = "{BOARDS[name]}"\n'
    )
    return Daemon("leadline_agent", config, folder / f"{name}.log")


def _controller_toml(
    broker: RestartableBroker, authority: Authority, kubeconfig: Path, address: str
) -> str:
    return (
        f'cluster = "{CLUSTER}"\nwarm_up_s = 3\n'
        f"{_broker_toml(broker, authority.client('controller'))}"
        f'[kubernetes]\nkubeconfig = "{kubeconfig}"\n'
        f'[grpc]\naddress = "{address}"\n'
        f'[decisions]\npath = "{kubeconfig.parent}/decisions.db"\n'
        f"[probe]\nport = {free_port()}\ninterval_s = 2\nping_interval_s = 1\n"
        "duration_ms = 1000\nmax_bytes = 1000000\n"
        "link_time_share = 0.1\nbytes_per_day = 1000000000000\n"
        "[publish]\nhome_assistant = true\ninterval_s = 1\n"
    )


def _broker_toml(broker: RestartableBroker, certificate: Certificate) -> str:
    return f'[broker]\nhost = "127.0.0.1"\nport = {broker.port}\n{certificate.toml("broker.tls")}'
