"""The parts of a running controller that its servers read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.ports import Clock, Leadership
from leadline_controller.history.log import DecisionLog
from leadline_controller.history.recorder import Recorder
from leadline_controller.history.recording import Recording
from leadline_controller.inspect.problems import API_SERVER, BROKER
from leadline_controller.kube.reachability import ReachabilityLog
from leadline_controller.notify import Heartbeats
from leadline_controller.probing.addresses import AddressPolicy
from leadline_controller.probing.scheduler import ProbeScheduler
from leadline_controller.registry.lookup import ImageLookup
from leadline_controller.rescheduling.rescheduler import Rescheduler
from leadline_controller.scheduling.scheduler import Scheduler
from leadline_controller.scheduling.shadow import Shadow
from leadline_controller.serve.certificates import CertificateFile
from leadline_controller.serve.settings import Unserved
from leadline_controller.telemetry.sampler import Sampler
from leadline_controller.telemetry.session import BrokerSession, BrokerStatus
from leadline_controller.telemetry.state import TelemetryState
from leadline_controller.traffic.graph import TrafficGraph


@dataclass(slots=True)
class Delivery:
    """Whether notifications arrive."""

    receiver: str  # its kind and host
    problem: str = ""  # why the last one did not arrive; empty if it did, or none was sent yet
    # On the clock: when it arrived, or was first tried; None if none was sent yet.
    since_s: float | None = None


class Broker(Protocol):
    """Says how the session with the broker is."""

    def status(self) -> BrokerStatus:
        """How it is now."""
        ...


class Observed(Protocol):
    """What nodes, decisions and the map are read from: a running controller, or a recording. Read
    `state` and `decisions` only in the event loop."""

    telemetry: TelemetryState
    state: ClusterState
    decisions: DecisionLog
    # The stored decisions and series, of earlier runs as well.
    history: Recorder
    # What was measured last, and is not in `history` yet.
    sampler: Sampler
    # The cluster in the topics.
    cluster_name: str
    rule: Rule
    # None if no other strategy decides beside that one.
    shadow: Shadow | None
    # None if it places no pods.
    scheduler: Scheduler | None
    # Of the pods that it places, if it has the leadership.
    scheduler_name: str
    # Whether it serves kube-scheduler's extender calls.
    advises: bool
    # Which addresses are probed.
    address_policy: AddressPolicy
    # Who talks to whom.
    traffic_graph: TrafficGraph

    @property
    def clock(self) -> Clock:
        """Of the states."""
        ...

    @property
    def leadership(self) -> Leadership:
        """Whether it leads."""
        ...

    @property
    def session(self) -> Broker:
        """With the broker."""
        ...


class Parts(Observed, Protocol):
    """A running controller. Read `image_lookup`, too, only in the event loop."""

    clock: Clock
    # When it started, on `clock`.
    started_s: float
    # Whether the settings name no strategy: then the installation keeps the one that it ran.
    keeps_strategy: bool
    leadership: Leadership
    rescheduler: Rescheduler
    probe_scheduler: ProbeScheduler
    session: BrokerSession
    # None without a Kubernetes cluster.
    api_server: ReachabilityLog | None
    # None if no registry is asked.
    image_lookup: ImageLookup | None
    heartbeats: Heartbeats
    # The files whose end is watched.
    certificates: Sequence[CertificateFile]
    # None if nobody is notified.
    delivery: Delivery | None
    # None if nothing is recorded.
    recording: Recording | None
    # The servers that wait for their addresses, by section.
    unserved: dict[str, Unserved]


def unreachable(parts: Parts) -> Iterator[str]:
    """What it cannot reach now: "broker", "API server"."""
    if not parts.session.status().answers(parts.clock.now_s()):
        yield BROKER
    server = parts.api_server
    if server is not None and any(not each.refused for each in server.status().failures):
        yield API_SERVER
