"""A probe scheduler for boards in memory, and the leases that it sends."""

from leadline_controller.framework.model import Node
from leadline_controller.probing.budgets import BandwidthBudget, Uplink
from leadline_controller.probing.planning import ProbeLimits
from leadline_controller.probing.scheduler import ProbeScheduler, ProbeSettings
from leadline_controller.telemetry.accepted import Agent
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.controller.telemetry.board_builder import BoardMessages
from tests.controller.telemetry.telemetry_builder import TelemetryBuilder

LIMITS = ProbeLimits(interval_s=10.0, ping_ttl_s=60, ping_peers=2)


AMPLE = BandwidthBudget(link_time_share=0.5, bytes_per_day=10**12)


class LeaseRecorder:
    """Records the leases that it is to send."""

    def __init__(self) -> None:
        self.pings: list[tuple[str, pb.PingLease]] = []
        self.tests: list[tuple[str, pb.BandwidthLease]] = []

    def send(self, lease: pb.Lease) -> None:
        if lease.HasField("ping"):
            self.pings.append((lease.node, lease.ping))
        else:
            self.tests.append((lease.node, lease.bandwidth))

    def pinged(self) -> list[str]:
        nodes = [node for node, _ in self.pings]
        self.pings.clear()
        return nodes

    def tested(self) -> list[tuple[str, str]]:
        """(client, server) of each test."""
        return [
            (work.peer.node, node)
            for node, work in self.tests
            if work.role == pb.BandwidthLease.SERVER
        ]


class ProbeHarness:
    """A probe scheduler for boards that published their births."""

    def __init__(
        self, *names: str, anchors: tuple[str, ...] = (), uplinks: tuple[Uplink, ...] = ()
    ) -> None:
        self.telemetry = TelemetryBuilder()
        self.sent = LeaseRecorder()
        self.nodes: dict[str, Node] = {}
        self.is_prompt = True
        probing = ProbeSettings(LIMITS, AMPLE, uplinks, anchors)
        self.probe_scheduler = ProbeScheduler(
            self.telemetry.state,
            self.sent.send,
            probing,
            lambda: self.nodes,
            is_prompt=lambda: self.is_prompt,
        )
        for name in names:
            self.born(name)

    def born(
        self, name: str, address: str = "192.0.2.1", probes: tuple[str, ...] = ("iperf3",)
    ) -> None:
        self.nodes[name] = Node(name, addresses=(address,))
        agent = Agent(name, address=address, probes=probes)
        self.telemetry.state.birth(agent, self.telemetry.stamp(name))
        self.probe_scheduler.on_birth(name)

    def fail(
        self, lease: pb.BandwidthLease, node: str, outcome: pb.BandwidthReport.Outcome
    ) -> None:
        """One end reports that it could not test."""
        report = BoardMessages(node).bandwidth(
            lease.peer.node, None, lease_id=lease.lease_id, outcome=outcome
        )
        assert self.probe_scheduler.bandwidth_refusal(node, report) is None
        assert self.probe_scheduler.on_bandwidth(node, report, 0.0) is None

    def report(self, lease: pb.BandwidthLease, node: str, *, mbps: float = 90.0) -> bool:
        """One end of a test reports to the probe scheduler. Whether it has the result then."""
        board = BoardMessages(node)
        is_client = lease.role == pb.BandwidthLease.CLIENT
        report = board.sent(lease) if is_client else board.received(lease, mbps)
        assert self.probe_scheduler.bandwidth_refusal(node, report) is None
        return self.probe_scheduler.on_bandwidth(node, report, 0.0) is not None
