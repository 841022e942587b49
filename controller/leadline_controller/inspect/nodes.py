"""The controller's state as the inspection service reads it, and nodes and links as its messages.

Values that are unknown or not finite are left out, and never become zeros.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cached_property

import numpy as np
from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.framework.model import CPU, MEMORY, PODS, Node, Pod
from leadline_controller.framework.selectors import Selector, selects
from leadline_controller.framework.services import Service, service_name, service_of
from leadline_controller.framework.view import Floats
from leadline_controller.inspect.order import in_order
from leadline_controller.inspect.parts import Observed
from leadline_controller.strategies.response_time import ResponseTime
from leadline_controller.telemetry.accepted import Agent
from leadline_controller.telemetry.link_status import LinkStatus
from leadline_controller.telemetry.state import Board

BANDWIDTH = "bandwidth_mbps"
_AGENT = {True: "online", False: "offline", None: "unknown"}


_SLICE = 16
_MOST_PREDICTED = 16  # services, those of the newest pods
_MAX_ESTIMATED_NODES = 200  # 19,900 pairs, 1.5 MB on the wire


def agent_state(agent: Agent, report_age_s: float | None, silent_s: float) -> str:
    """online, offline, silent or unknown, of a board whose broker answers. silent_s: how old the
    newest report of an agent that is online may be."""
    if agent.online and report_age_s is not None and report_age_s > silent_s:
        return "silent"
    return _AGENT[agent.online]


class NodeReader:
    """Reads the nodes at one snapshot. names: every node of the cluster and every agent that sent a
    message, sorted."""

    def __init__(self, source: Observed) -> None:
        self._source = source
        self._now_s = source.clock.now_s()
        self._agents = source.telemetry.agents().keys()
        self._broker_answers = source.session.status().answers(self._now_s)
        self._view = source.state.view(source.telemetry, self._now_s)
        self._pods = Counter(
            node for pod, node in source.state.pods() if node is not None and not pod.finished
        )
        self._nodes = {node.name: node for node in self._view.nodes}
        self.names = sorted(self._agents | self._nodes.keys(), key=in_order)

    async def statuses(self, selector: Selector = ()) -> list[pb.NodeStatus]:
        """All nodes, or those of the cluster that the selector selects, read in slices, because a
        decision must not wait for all of them."""
        nodes, statuses, names = self._nodes, [], self.names
        if selector:
            names = [x for x in names if x in nodes and selects(selector, nodes[x].labels)]
        for at, name in enumerate(names):
            if at % _SLICE == 0:
                await asyncio.sleep(0)
            statuses.append(self.status(name))
        return statuses

    def status(self, name: str) -> pb.NodeStatus:
        """One node of `names`."""
        node = self._nodes.get(name)
        board = self._source.telemetry.board(name, self._now_s)
        agent, age_s, ttl_s = board.agent, board.age_s, self._source.telemetry.ttl.report_s
        status = pb.NodeStatus(
            name=name,
            # What the broker said last is nobody's knowledge while it does not answer.
            agent=agent_state(agent, age_s, ttl_s) if self._broker_answers else "unknown",
            metrics=self._metrics(name, board),
            lost_messages=board.lost,
            pods=self._pods[name],
            report_age_s=None if age_s is None else max(0.0, age_s),
            agent_version=agent.version,
            hardware_model=agent.hardware_model,
            address=agent.address,
            architecture=agent.architecture,
            kernel=agent.kernel,
            cores=agent.cores,
            memory_bytes=agent.memory_bytes,
            report_interval_s=agent.interval_s,
            failed=board.report.failed if board.report else {},
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
            for service, predicted_ms in self._predicted_ms.items():
                status.predicted_ms[service] = float(predicted_ms[at])
        status.notes.extend(self._notes(node, board))
        policy = self._source.address_policy
        if node is not None and agent.address:
            refusal = policy.refusal(agent.address, node)
            status.notes.extend([] if refusal is None else [f"not probed: {refusal}"])
        contradicting = self._source.telemetry.contradicting
        status.contradicting.extend(what for what, nodes in contradicting.items() if name in nodes)
        status.notes.extend(f"{what} contradict its peers'" for what in status.contradicting)
        for metric in status.metrics:
            if metric.host_limited or metric.suspect:
                status.notes.append(f"bandwidth {metric.in_words}")
        if status.lost_messages:
            status.notes.append(f"{status.lost_messages} messages lost")
        return status

    @cached_property
    def _predicted_ms(self) -> Mapping[str, Floats]:
        """Service -> the predicted response of its next replica on each node, which the paper
        labels the nodes with (Alqahtani and Toosi, Section 3.1). Empty under other strategies."""
        strategy, newest = self._source.rule.strategy, dict[Service, Pod]()
        if not isinstance(strategy, ResponseTime) or not self._view.nodes:
            return {}
        running = [pod for pod, _ in self._source.state.pods() if not pod.finished]
        for pod in sorted(running, key=lambda pod: pod.created_s or 0.0, reverse=True):
            service = service_of(pod)
            if service is not None and pod.annotations.profile_ms:
                newest.setdefault(service, pod)
            if len(newest) == _MOST_PREDICTED:
                break
        everyone = np.arange(len(self._view))
        return {
            service_name(service): strategy.score(self._view, pod, everyone).total
            for service, pod in newest.items()
        }

    def matrix(self) -> pb.GetMatrixResponse:
        """All nodes, and their links; of many nodes only the measured ones."""
        names = self.names if len(self.names) <= _MAX_ESTIMATED_NODES else ()
        return pb.GetMatrixResponse(nodes=self.names, links=self._link_statuses(names))

    def placed_pods(self, name: str) -> list[str]:
        """namespace/name of our scheduler's unfinished pods on this node, sorted."""
        ours = self._source.scheduler_name
        return sorted(
            pod.key
            for pod, node in self._source.state.pods()
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

    def _link_status(self, link: LinkStatus) -> pb.LinkStatus:
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

    def _metrics(self, name: str, board: Board) -> Iterator[pb.Measurement]:
        (link,) = self._source.telemetry.node_links((name,), self._now_s)
        for metric, (value, age_s) in board.values.items():
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
                    in_words="" if bandwidth is None else str(bandwidth),
                )

    def _notes(self, node: Node | None, board: Board) -> Iterator[str]:
        agent, report = board.agent, board.report
        if node is None:
            listed = self._source.state.listed
            yield "not in the cluster" if listed else "the cluster has not answered yet"
        else:
            if node.unschedulable:
                yield "cordoned"
            if not node.ready:
                yield "not ready"
            yield from node.warnings
        if agent.node not in self._agents:
            yield "agent never heard"
        elif not self._broker_answers:
            yield "the broker does not answer"
        elif agent.online is False:
            yield "agent offline"
        elif report is None:
            yield "no fresh report"
        if report is not None:
            yield from report.notes
        if agent.dropped_messages:
            yield f"{agent.dropped_messages} messages dropped by its buffer"


def _resources(amounts: Mapping[str, int]) -> pb.Resources:
    return pb.Resources(
        cpu_milli=amounts.get(CPU, 0),
        memory_bytes=amounts.get(MEMORY, 0),
        pods=amounts.get(PODS, 0),
    )
