"""The controller's state as the inspection service reads it, and nodes and links as its messages.

Values that are unknown or not finite are left out, and never become zeros.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.api.certificates import CertificateFile
from leadline_controller.api.settings import Unserved
from leadline_controller.cluster.state import ClusterState
from leadline_controller.decisions.log import DecisionLog
from leadline_controller.decisions.recorder import Recorder
from leadline_controller.framework.model import CPU, MEMORY, PODS, SCHEDULER_NAME, Node
from leadline_controller.framework.options import OptionValue
from leadline_controller.framework.ports import Leadership
from leadline_controller.kube.reachability import Reachability
from leadline_controller.leaderelection.elector import SOLE_LEADER
from leadline_controller.probing.addresses import AddressPolicy
from leadline_controller.probing.scheduler import BudgetReading
from leadline_controller.registry.lookup import RegistryReading
from leadline_controller.rescheduling.rescheduler import Rescheduler
from leadline_controller.scheduling.queue import QueueReading
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.link_readings import LinkReading
from leadline_controller.telemetry.sampler import Sampler
from leadline_controller.telemetry.session import BrokerReading
from leadline_controller.telemetry.state import Agent, TelemetryState

BANDWIDTH = "bandwidth_mbps"
BROKER, API_SERVER = "broker", "API server"
_AGENT = {True: "online", False: "offline", None: "unknown"}


@dataclass(frozen=True, slots=True)
class InspectionSource:
    """A running controller. history: the stored decisions, of earlier runs as well. now_s: the
    monotonic clock of the states. cluster_name: the cluster in the topics. strategy: its name.
    scheduler_name: of the pods that this controller schedules, if `places` is true and it has the
    leadership. advises: whether it serves kube-scheduler's extender calls. address_policy: the
    addresses at which it probes boards. budget: reads what probing costs, on any thread.
    sampler: has what was measured last and is not in `history` yet. rescheduler: None before it
    runs. registries: what registries tell; read it in the event loop. started_s: when it started,
    on now_s. broker, api_server, queue: how they are; None where there is none. options: the
    strategy's. certificates: those that it uses. stuck: the loops that do not run any more.
    unserved: the servers that wait for their addresses.

    Read `cluster` and `decisions` only in the event loop.
    """

    telemetry: TelemetryState
    cluster: ClusterState
    decisions: DecisionLog
    history: Recorder
    now_s: Callable[[], float]
    version: str
    cluster_name: str
    strategy: str
    scheduler_name: str = SCHEDULER_NAME
    leadership: Leadership = SOLE_LEADER
    places: bool = True
    advises: bool = False
    address_policy: AddressPolicy | None = None
    budget: Callable[[], BudgetReading] = BudgetReading
    sampler: Sampler | None = None
    rescheduler: Callable[[], Rescheduler | None] = lambda: None
    registries: Callable[[], Sequence[RegistryReading]] = tuple
    started_s: float = 0.0
    broker: Callable[[], BrokerReading | None] = lambda: None
    api_server: Callable[[], Reachability | None] = lambda: None
    queue: Callable[[], QueueReading | None] = lambda: None
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    certificates: Sequence[CertificateFile] = ()
    stuck: Callable[[], Sequence[str]] = tuple
    unserved: Callable[[], Collection[Unserved]] = tuple

    def unreachable(self) -> Iterator[str]:
        """What it cannot reach now: "broker", "API server"."""
        broker, api_server = self.broker(), self.api_server()
        if broker is not None and not broker.answers(self.now_s()):
            yield BROKER
        if api_server is not None and any(not each.refused for each in api_server.failures):
            yield API_SERVER


_MAX_ESTIMATED_NODES = 200  # 19,900 pairs, 1.5 MB on the wire


def in_order(name: str) -> list[tuple[str, int]]:
    """A sort key for names with numbers: n2 comes before n10."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"([^0-9]*)([0-9]*)", name)]


def agent_state(agent: Agent, report_age_s: float | None, silent_s: float) -> str:
    """online, offline, silent or unknown, of a board whose broker answers. silent_s: how old the
    newest report of an agent that is online may be."""
    if agent.online and report_age_s is not None and report_age_s > silent_s:
        return "silent"
    return _AGENT[agent.online]


class NodeReader:
    """Reads the nodes at one snapshot. names: every node of the cluster and every agent that sent a
    message, sorted."""

    def __init__(self, source: InspectionSource) -> None:
        self._source = source
        self._now_s = source.now_s()
        self._agents = source.telemetry.agents()
        broker = source.broker()
        self._hears = broker is None or broker.answers(self._now_s)
        self._view = source.cluster.view(source.telemetry, self._now_s)
        self._pods = Counter(
            node for pod, node in source.cluster.pods() if node is not None and not pod.finished
        )
        self._nodes = {node.name: node for node in self._view.nodes}
        self.names = sorted(self._agents.keys() | self._nodes.keys(), key=in_order)

    def status(self, name: str) -> pb.NodeStatus:
        """One node of `names`."""
        node = self._nodes.get(name)
        agent = self._agents.get(name)
        board = self._source.telemetry.board(name, self._now_s)
        age_s = self._source.telemetry.report_age_s(name, self._now_s)
        status = pb.NodeStatus(
            name=name,
            agent=self._agent_state(agent, age_s),
            metrics=self._metrics(name),
            lost_messages=self._source.telemetry.lost_messages(name),
            pods=self._pods[name],
            report_age_s=None if age_s is None else max(0.0, age_s),
            agent_version=agent.version if agent else "",
            hardware_model=agent.hardware_model if agent else "",
            address=agent.address if agent else "",
            architecture=agent.architecture if agent else "",
            kernel=agent.kernel if agent else "",
            cores=agent.cores if agent else 0,
            memory_bytes=agent.memory_bytes if agent else 0,
            report_interval_s=agent.interval_s if agent else 0,
            failed=board.failed if board else {},
        )
        if node is not None:
            at = self._view.table.index[name]
            taken = {each: int(self._view.requested_of(each)[at]) for each in (CPU, MEMORY, PODS)}
            status.in_cluster = True
            status.schedulable = not node.unschedulable
            status.ready = node.ready
            status.tier = node.tier
            status.allocatable.CopyFrom(_resources(node.allocatable))
            status.requested.CopyFrom(_resources(taken))
        status.notes.extend(self._notes(node, agent, board))
        policy = self._source.address_policy
        if policy is not None and node is not None and agent is not None and agent.address:
            refusal = policy.refusal(agent.address, node)
            status.notes.extend([] if refusal is None else [f"not probed: {refusal}"])
        contradicting = self._source.telemetry.contradicting
        status.contradicting.extend(what for what, nodes in contradicting.items() if name in nodes)
        status.notes.extend(f"{what} contradict its peers'" for what in status.contradicting)
        if any(metric.host_limited for metric in status.metrics):
            status.notes.append("bandwidth is host-limited")
        if status.lost_messages:
            status.notes.append(f"{status.lost_messages} messages lost")
        return status

    def _agent_state(self, agent: Agent | None, report_age_s: float | None) -> str:
        """online, offline, silent or unknown. What the broker said last is nobody's knowledge while
        it does not answer, or once the board's reports have ended."""
        if agent is None or not self._hears:
            return "unknown"
        return agent_state(agent, report_age_s, self._source.telemetry.ttl.report_s)

    def matrix(self) -> pb.GetMatrixResponse:
        """All nodes, and their links; of many nodes only the measured ones."""
        names = self.names if len(self.names) <= _MAX_ESTIMATED_NODES else ()
        return pb.GetMatrixResponse(nodes=self.names, links=self._link_statuses(names))

    def placed_pods(self, name: str) -> list[str]:
        """namespace/name of our scheduler's unfinished pods on this node, sorted."""
        ours = self._source.scheduler_name
        return sorted(
            pod.key
            for pod, node in self._source.cluster.pods()
            if node == name and pod.scheduler_name == ours and not pod.finished
        )

    def links_of(self, node: str) -> list[pb.LinkStatus]:
        """The links of one node, measured or estimated, sorted by names. On any thread."""
        return self._link_statuses((node,), node)

    def links_between(self, pairs: Set[tuple[str, str]]) -> list[pb.LinkStatus]:
        """The links of these sorted pairs, measured or estimated. On any thread."""
        links = self._source.telemetry.links(self._now_s, pairs=pairs)
        return [self._link_status(link) for link in links]

    def _link_statuses(
        self, estimated_from: Iterable[str], node: str | None = None
    ) -> list[pb.LinkStatus]:
        links = self._source.telemetry.links(self._now_s, estimated_from, node)
        links.sort(key=lambda link: (in_order(link.a), in_order(link.b)))
        return [self._link_status(link) for link in links]

    def _link_status(self, link: LinkReading) -> pb.LinkStatus:
        status = pb.LinkStatus(a=link.a, b=link.b)
        if link.rtt_ms is not None and math.isfinite(link.rtt_ms):
            status.rtt_ms = link.rtt_ms
            status.rtt_method = link.rtt_method
            if link.rtt_method:
                status.rtt_age_s = max(0.0, self._now_s - link.rtt_at_s)
            if link.rtt_error_ms is not None:
                status.rtt_error_ms = link.rtt_error_ms
        status.rtt_source, status.flapping = link.rtt_source, link.flapping
        if link.loss is not None:
            status.loss = link.loss
        if link.jitter_ms is not None:
            status.jitter_ms = link.jitter_ms
        if link.bandwidth_mbps is not None and math.isfinite(link.bandwidth_mbps):
            status.bandwidth_mbps = link.bandwidth_mbps
            status.bandwidth_age_s = max(0.0, self._now_s - link.bandwidth_at_s)
            status.bandwidth_is_lower_bound = link.lower_bound
            status.bandwidth_is_host_limited = link.is_host_limited
            status.bandwidth_confidence = self._source.telemetry.confidence(
                BANDWIDTH, status.bandwidth_age_s
            )
        return status

    def _metrics(self, name: str) -> Iterator[pb.Measurement]:
        known = self._source.telemetry.measurements(name, self._now_s)
        (link,) = self._source.telemetry.node_links((name,), self._now_s)
        for metric, (value, age_s) in known.items():
            if math.isfinite(value):
                bandwidth = link.bandwidth if metric == BANDWIDTH else None
                yield pb.Measurement(
                    name=metric,
                    value=value,
                    age_s=max(0.0, age_s),
                    confidence=self._source.telemetry.confidence(metric, age_s),
                    lower_bound=bandwidth is not None and bandwidth.lower_bound,
                    suspect=bandwidth is not None and bandwidth.is_suspect,
                    host_limited=bandwidth is not None and bandwidth.is_host_limited,
                    source=bandwidth.source if bandwidth is not None else "",
                )

    def _notes(
        self, node: Node | None, agent: Agent | None, board: BoardReading | None
    ) -> Iterator[str]:
        if node is None:
            listed = self._source.cluster.listed
            yield "not in the cluster" if listed else "the cluster has not answered yet"
        else:
            if node.unschedulable:
                yield "cordoned"
            if not node.ready:
                yield "not ready"
            yield from node.warnings
        if agent is None:
            yield "agent never heard"
        elif not self._hears:
            yield "the broker does not answer"
        elif agent.online is False:
            yield "agent offline"
        elif board is None:
            yield "no fresh report"
        if board is not None:
            yield from board.notes
        if agent is not None and agent.dropped_messages:
            yield f"{agent.dropped_messages} messages dropped by its buffer"


def _resources(amounts: Mapping[str, int]) -> pb.Resources:
    return pb.Resources(
        cpu_milli=amounts.get(CPU, 0),
        memory_bytes=amounts.get(MEMORY, 0),
        pods=amounts.get(PODS, 0),
    )
