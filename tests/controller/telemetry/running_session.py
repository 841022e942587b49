"""A session with a broker, and what it hears."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from leadline_controller.telemetry.ingestor import TelemetryIngestor
from leadline_controller.telemetry.session import BrokerSession, BrokerSettings, BrokerTls
from leadline_controller.telemetry.state import TelemetryState, TimesToLive

from tests.controller.probing.permissive_leases import PermissiveLeases
from tests.controller.telemetry.board_builder import CLUSTER


class RunningSession:
    """A session with its state."""

    def __init__(self, host: str, port: int, tls: BrokerTls | None = None) -> None:
        self.now_s = 1000.0
        self.state = TelemetryState(TimesToLive())
        leases = PermissiveLeases()
        self.births = leases.births
        ingestor = TelemetryIngestor(CLUSTER, self.state, leases)
        settings = BrokerSettings(host, port, CLUSTER, "controller", tls)
        self.session = BrokerSession(settings, ingestor, lambda: self.now_s)

    def cpu(self, node: str = "n1") -> tuple[float, float] | None:
        return self.state.board(node, self.now_s).values.get("cpu_percent")

    def online(self, node: str = "n1") -> bool | None:
        agent = self.state.agents().get(node)
        return agent.online if agent else None


@contextmanager
def listening(host: str, port: int, tls: BrokerTls | None = None) -> Iterator[RunningSession]:
    ears = RunningSession(host, port, tls)
    ears.session.start()
    try:
        yield ears
    finally:
        ears.session.stop()


class TopicHandler:
    """Has a will, and hears nothing."""

    filters: Sequence[str] = ("elsewhere/x",)
    will: tuple[str, bytes] | None = ("elsewhere/will", b"gone")

    def connected(self) -> None:
        pass

    def received(self, topic: str, payload: bytes, *, retained: bool) -> None:
        pass


@contextmanager
def session_with(host: str, port: int) -> Iterator[BrokerSession]:
    settings = BrokerSettings(host, port, CLUSTER, "controller")
    ingestor = TelemetryIngestor(CLUSTER, TelemetryState(TimesToLive()), PermissiveLeases())
    session = BrokerSession(settings, ingestor, handler=TopicHandler())
    session.start()
    try:
        yield session
    finally:
        session.stop()
