"""Boards that speak the wire protocol over a real broker."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from leadline_controller.framework.model import Node
from leadline_controller.probing.planning import ProbeLimits
from leadline_controller.probing.scheduler import ProbeScheduler, ProbeSettings
from leadline_controller.telemetry.ingestor import TelemetryIngestor
from leadline_controller.telemetry.session import BrokerSession, BrokerSettings
from leadline_controller.telemetry.state import TelemetryState, TimesToLive
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.controller.probing.harness import AMPLE
from tests.controller.telemetry.board_builder import CLUSTER, BoardMessages
from tests.controller.telemetry.wire_client import WireClient, connected
from tests.support.mosquitto import Broker, mosquitto
from tests.support.ports import wait_until

QUICK = ProbeLimits(interval_s=0.2, duration_ms=300, ttl_ms=1000, ping_ttl_s=3, ping_peers=2)


class BrokerHarness:
    """A controller's MQTT session and probe scheduler, and boards that obey their leases.

    tested: (client, server, lease) of each test. overlaps: how often a board had two tests at once.
    """

    def __init__(self, broker: Broker) -> None:
        self.state = TelemetryState(TimesToLive())
        nodes = {name: Node(name, addresses=("192.0.2.1",)) for name in ("n1", "n2", "n3")}
        self.probe_scheduler = ProbeScheduler(
            self.state,
            lambda lease: self.session.send(lease),
            ProbeSettings(QUICK, AMPLE),
            lambda: nodes,
        )
        ingestor = TelemetryIngestor(CLUSTER, self.state, self.probe_scheduler)
        settings = BrokerSettings(broker.host, broker.port, CLUSTER, "controller")
        self.session = BrokerSession(settings, ingestor)
        self.pings: Counter[str] = Counter()
        self.tested: list[tuple[str, str, str]] = []
        self.served: list[str] = []
        self.at_work = {name: threading.Semaphore(1) for name in nodes}
        self.overlaps = 0
        self._over = threading.Event()
        self._ticking = threading.Thread(target=self._tick)

    def __enter__(self) -> "BrokerHarness":
        self.session.start()
        self._ticking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._ticking.join()
        self.session.stop()

    def _tick(self) -> None:
        while not self._over.wait(0.05):
            self.probe_scheduler.tick(time.monotonic())

    @contextmanager
    def board(self, broker: Broker, name: str) -> Iterator[WireClient]:
        board = BoardMessages(name)
        with connected(broker, will=board) as client:

            def work(lease: pb.Lease) -> None:
                if lease.WhichOneof("work") == "ping":
                    self.pings[name] += 1
                    client.send_soon(board, board.rtt(*[(p.node, 1.5) for p in lease.ping.peers]))
                else:
                    threading.Thread(
                        target=self._test, args=(client, board, lease.bandwidth)
                    ).start()

            client.listen(board, work)
            client.send(board, board.status(online=True))
            client.send(board, board.birth())
            yield client

    def _test(self, client: WireClient, board: BoardMessages, lease: pb.BandwidthLease) -> None:
        """The server needs the client's time and does not wait for it: it reports first."""
        alone = self.at_work[board.node].acquire(blocking=False)
        self.overlaps += not alone
        is_server = lease.role == pb.BandwidthLease.SERVER
        if is_server:
            self.served.append(lease.lease_id)
        else:
            time.sleep(0.05)
            self.tested.append((board.node, lease.peer.node, lease.lease_id))
        if alone:
            self.at_work[board.node].release()
        client.send_soon(board, board.received(lease, 90.0) if is_server else board.sent(lease))


@pytest.mark.broker
def test_a_cluster_measures_its_links_under_leases() -> None:
    with mosquitto() as broker, BrokerHarness(broker) as broker_harness, ExitStack() as boards:
        for name in ("n1", "n2", "n3"):
            boards.enter_context(broker_harness.board(broker, name))
        wait_until(
            lambda: len({frozenset(test[:2]) for test in broker_harness.tested}) == 3,
            "each pair is tested",
        )
        enough = len(broker_harness.tested) + 6
        wait_until(lambda: len(broker_harness.tested) >= enough, "and again")
        wait_until(
            lambda: min(broker_harness.pings[n] for n in ("n1", "n2", "n3")) >= 3, "pings go on"
        )
        ids = {lease_id for _, _, lease_id in broker_harness.tested}
        wait_until(lambda: ids <= set(broker_harness.served), "each test had a server")
        now_s = time.monotonic()
        known = {(link.a, link.b): link for link in broker_harness.state.links(now_s)}
    assert set(known) == {("n1", "n2"), ("n1", "n3"), ("n2", "n3")}
    assert {link.rtt_ms for link in known.values()} == {1.5}
    # 64 KiB at 90 Mbit/s are so few that a shaper's burst may have let them pass at once.
    assert all(33.0 < (link.bandwidth_mbps or 0.0) <= 90.0 for link in known.values())
    assert broker_harness.overlaps == 0
    assert {test[0] for test in broker_harness.tested} == {"n1", "n2", "n3"}


@pytest.mark.broker
def test_a_client_that_dies_does_not_block_the_other_tests() -> None:
    with (
        mosquitto() as broker,
        BrokerHarness(broker) as broker_harness,
        broker_harness.board(broker, "n1"),
        broker_harness.board(broker, "n2") as client,
        broker_harness.board(broker, "n3"),
    ):
        wait_until(lambda: broker_harness.tested, "tests begin")
        client.drop()
        wait_until(
            lambda: [set(pair[:2]) for pair in broker_harness.tested[-3:]] == [{"n1", "n3"}] * 3,
            "the others are tested on",
            timeout_s=40,
        )
    assert broker_harness.overlaps == 0
