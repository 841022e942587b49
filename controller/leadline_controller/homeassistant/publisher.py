"""Publishes the boards' states and Home Assistant's discovery messages, and removes those that no
board needs any more.

Everything is retained, so the broker is the memory: what a controller finds there after a start, it
neither publishes again nor forgets to remove.
"""

import heapq
import math
from collections.abc import Iterator, Sequence
from random import Random
from threading import Lock
from typing import Protocol

from leadline_controller.cluster.state import ClusterState
from leadline_controller.homeassistant.messages import (
    EXPIRES_AFTER,
    OFFLINE,
    ONLINE,
    REFRESHED_AFTER,
    BoardState,
    PublishSettings,
    Topics,
    is_board,
)
from leadline_controller.inspect.nodes import agent_state
from leadline_controller.telemetry.state import Board, TelemetryState

# Of one tick, that is of a second: 10,000 boards have their states in 20 s, and are discovered in
# eight minutes, as Home Assistant takes milliseconds for each entity.
_MOST_STATES, _MOST_DISCOVERIES, _MOST_REMOVALS = 500, 20, 500
# The broker's retained messages come first, so that they are not published again, and the agents'
# are known. Until an agent's first report comes, what the broker retains is better than unknowns,
# but for one interval at most.
_SETTLE_S = 2.0
_RECONCILE_EVERY_S = 60.0
# A node that is deleted and comes back keeps its entities' history and names.
_GONE_AFTER_S = 600.0
# After a start Home Assistant has much else to do, and it might start again and again.
_MOST_JITTER_S, _REPEAT_AFTER_S = 5.0, 60.0
# Topics that are remembered: six of each of 20,000 boards.
_MOST_KEPT = 120_000
_LOST = 0  # no hash: the broker may have lost the message


class Retain(Protocol):
    """Has the broker retain messages."""

    def __call__(
        self, topic: str, payload: bytes, expiry_s: int | None = None, qos: int = 0
    ) -> None:
        """Publish it, to be retained for `expiry_s` if that is set; an empty payload removes what
        is retained."""
        ...


class StatePublisher:
    """Call `tick` once a second in the event loop. The MQTT session calls the rest, as its
    topic handler, on its thread."""

    def __init__(
        self,
        settings: PublishSettings,
        cluster_name: str,
        cluster: ClusterState,
        telemetry: TelemetryState,
        retain: Retain,
        random: Random,
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._telemetry = telemetry
        self._retain = retain
        self._random = random
        self._topics = Topics(cluster_name, settings.discovery_prefix)
        self._lock = Lock()
        self._kept: dict[str, int] = {}  # discovery topic -> hash of what the broker retains
        self._is_new_session = self._has_restarted = False
        self._is_shown_online = False
        self._acts = False
        self._refresh_s = REFRESHED_AFTER * settings.interval_s
        self._expiry_s = round(EXPIRES_AFTER * settings.interval_s)
        self._settled_s = self._reported_s = self._repeat_s = math.inf
        self._repeated_s = self._refreshed_s = self._reconciled_s = -math.inf
        self._sent: dict[str, tuple[bytes, float]] = {}  # board -> its newest state, and when
        self._due_s: dict[str, float] = {}  # board -> when its state is looked at again
        self._announced: dict[str, tuple[str, str]] = {}  # board -> model and version
        self._names: Sequence[str] = ()  # of all nodes
        self._boards: list[str] = []
        self._needed: set[str] | None = None  # their discovery topics; None: made when needed
        self._surplus_s: dict[str, float] = {}  # discovery topic -> since when no board needs it
        self.filters: Sequence[str] = self._topics.discoveries
        self.will: tuple[str, bytes] | None = None
        if settings.home_assistant:
            own = (self._topics.controller, self._topics.home_assistant)
            self.filters = (*own, *self._topics.discoveries)
            self.will = (self._topics.controller, OFFLINE)

    # On the session's thread.

    def connected(self) -> None:
        """A session began."""
        with self._lock:
            self._kept.clear()
            self._is_new_session = True
            self._is_shown_online = False

    def received(self, topic: str, payload: bytes, *, retained: bool) -> None:
        """A message of another client, or one that the broker retained."""
        with self._lock:
            if topic == self._topics.controller:
                # The will of another controller, or of an earlier session of this one, comes late.
                self._is_shown_online = self._is_shown_online and payload == ONLINE
            elif topic == self._topics.home_assistant:
                self._has_restarted |= payload == ONLINE and not retained
            elif self._topics.is_discovery(topic):
                if not payload:
                    self._kept.pop(topic, None)
                elif len(self._kept) < _MOST_KEPT:
                    self._kept[topic] = hash(payload)

    # In the event loop.

    def tick(self, now_s: float, *, acts: bool) -> None:
        """Publish what is due. acts: whether this controller leads and the broker is connected."""
        with self._lock:
            begins = self._is_new_session or (acts and not self._acts)
            self._is_new_session = False
        self._acts = acts
        if begins:
            self._settled_s, self._reconciled_s = now_s + _SETTLE_S, -math.inf
            self._reported_s = self._settled_s + self._settings.interval_s
            self._forget_published()
        if not acts:
            return
        if begins and not self._settings.home_assistant:
            self._retain(self._topics.controller, b"")  # what `stop` or the will left never expires
        if self._settings.home_assistant:
            self._heed_home_assistant(now_s)
            self._show_controller(now_s)
            if self._cluster.listed:
                self._set_boards()
        if now_s >= self._settled_s:
            if self._settings.home_assistant and self._cluster.listed:
                self._publish_states(now_s)
                self._announce()
            if now_s >= self._reconciled_s + _RECONCILE_EVERY_S:
                self._reconciled_s = now_s
                self._remove_surplus(now_s)

    def stop(self) -> None:
        """Say that nobody publishes any more, if this controller did."""
        if self._acts and self.will is not None:
            self._retain(*self.will)

    def _forget_published(self) -> None:
        self._refreshed_s = -math.inf
        self._sent.clear()
        self._due_s.clear()
        self._announced.clear()

    def _heed_home_assistant(self, now_s: float) -> None:
        """Publish all again when Home Assistant has started, for a broker that lost it."""
        with self._lock:
            if self._has_restarted and self._repeat_s == math.inf:
                wait_s = self._random.uniform(0.0, _MOST_JITTER_S)
                self._repeat_s = max(now_s + wait_s, self._repeated_s + _REPEAT_AFTER_S)
            self._has_restarted = False
            if now_s < self._repeat_s:
                return
            self._kept = dict.fromkeys(self._kept, _LOST)
        self._repeat_s, self._repeated_s = math.inf, now_s
        self._forget_published()

    def _show_controller(self, now_s: float) -> None:
        with self._lock:
            if self._is_shown_online and now_s - self._refreshed_s < self._refresh_s:
                return
            self._is_shown_online = True
        self._refreshed_s = now_s
        # QoS 1, so that the log tells when the ACL forbids it.
        self._retain(self._topics.controller, ONLINE, self._expiry_s, 1)

    def _set_boards(self) -> None:
        """The nodes of the cluster whose names can be levels of a topic, as all do that Kubernetes
        allows."""
        names = self._cluster.table.names
        if names != self._names:
            self._names = names
            self._boards, self._needed = [name for name in names if is_board(name)], None
            known = set(self._boards)
            for each in (self._sent, self._due_s, self._announced):
                for gone in each.keys() - known:
                    del each[gone]

    def _publish_states(self, now_s: float) -> None:
        def due_s(name: str) -> float:
            return self._due_s.get(name, -math.inf)

        # Those that wait the longest come first: with a short interval not all have their turn.
        due = (name for name in self._boards if due_s(name) <= now_s)
        names = heapq.nsmallest(_MOST_STATES, due, due_s)
        if not names:
            return
        for name, state, has_report in self._states(names, now_s):
            if state.agent == "online" and not has_report and now_s < self._reported_s:
                self._due_s[name] = now_s
                continue
            self._due_s[name] = now_s + self._settings.interval_s
            payload = state.payload()
            before, sent_s = self._sent.get(name, (b"", -math.inf))
            if payload != before or now_s - sent_s >= self._refresh_s:
                self._sent[name] = (payload, now_s)
                self._retain(self._topics.state(name), payload, self._expiry_s)

    def _states(self, names: Sequence[str], now_s: float) -> Iterator[tuple[str, BoardState, bool]]:
        """Name, state, and whether there was any report."""
        pods, ttl_s = self._cluster.pod_counts(), self._telemetry.ttl.report_s
        for name in names:
            board = self._telemetry.board(name, now_s)
            flags = board.report.flags if board.report else {}
            celsius, mbps = (_rounded(board, each) for each in ("cpu_celsius", "bandwidth_mbps"))
            state = BoardState(
                agent=agent_state(board.agent, board.age_s, ttl_s),
                temperature_celsius=celsius,
                throttled=flags.get("throttled"),
                under_voltage=flags.get("under_voltage"),
                bandwidth_mbps=mbps,
                bandwidth_is_lower_bound=None if mbps is None else board.is_bound,
                pods=pods.get(name, 0),
            )
            yield name, state, board.age_s is not None

    def _announce(self) -> None:
        """Publish the discovery messages that the broker does not retain as they are to be."""
        agents, left = self._telemetry.agents(), _MOST_DISCOVERIES
        for name in self._boards:
            agent = agents.get(name)
            device = (agent.hardware_model, agent.version) if agent else ("", "")
            if self._announced.get(name) == device:
                continue
            self._announced[name] = device
            with self._lock:
                is_kept = all(map(self._kept.get, self._topics.of_board(name)))
            if is_kept and not any(device):
                continue  # its agent was not heard yet since this controller's start
            has_changed = False
            for topic, payload in self._topics.discovery(name, *device, self._settings.interval_s):
                with self._lock:
                    if self._kept.get(topic) == hash(payload):
                        continue
                    self._kept[topic] = hash(payload)
                has_changed = True
                self._retain(topic, payload)
            left -= has_changed
            if not left:
                return

    def _remove_surplus(self, now_s: float) -> None:
        """Remove the discovery messages of boards that left the cluster, and of entities that an
        earlier version had; all of them if nothing is to be published."""
        if self._settings.home_assistant and not self._cluster.listed:
            return
        if self._needed is None:
            of_board = self._topics.of_board
            self._needed = {topic for name in self._boards for topic in of_board(name)}
        with self._lock:
            surplus = [topic for topic in self._kept if topic not in self._needed]
        grace_s = _GONE_AFTER_S if self._settings.home_assistant else 0.0
        self._surplus_s = {topic: self._surplus_s.get(topic, now_s) for topic in surplus}
        gone = [topic for topic, since_s in self._surplus_s.items() if now_s - since_s >= grace_s]
        for topic in gone[:_MOST_REMOVALS]:
            self._retain(topic, b"")
            with self._lock:
                self._kept.pop(topic, None)
        if len(gone) > _MOST_REMOVALS:
            self._reconciled_s = -math.inf  # the rest goes with the next tick


def _rounded(board: Board, metric: str) -> float | None:
    value, _ = board.values.get(metric, (math.nan, 0.0))
    return round(value, 1) if math.isfinite(value) else None
