"""Minutes without a broker, during which other modules continue their tests.

The outage starts with the first test that requests it and ends in `test_broker_away`. No test
touches one board, the witness, during the outage; the others may be frozen, rebooted and cut off.
It lasts ten minutes in `make test-outage`, and at least two in `make test-rollout`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.rollout.listener import ReceivedMessage, listener
from tests.rollout.nspawn_testbed import NspawnTestbed

AWAY_S = 60 * float(os.environ.get("BROKER_AWAY_MINUTES", "2"))
# The agents' own bound in ten minutes, and in a shorter outage less, because it fills less.
BUFFER_BYTES = round((1 << 20) * AWAY_S / 600)
BROKER = "mosquitto"
# An agent's longest pause between two attempts, plus the duration of an attempt, plus a margin.
RETURN_S = 150.0
# After a board's first message, its buffer is sent within this time at 50 messages a second.
DRAINED_S = 30.0


class BrokerOutage:
    """An outage since `began_s` (monotonic clock). before: the messages received before it."""

    def __init__(self, testbed: NspawnTestbed, witness: str = "pi-1") -> None:
        """Stop the broker, just after a report of the witness."""
        self.witness = witness
        self._yard = testbed
        with listener(testbed) as messages:
            for name in testbed.boards:
                messages.wait_for(name, "report", 1, within_s=90)
            count = len(messages.received(witness, "report"))
            messages.wait_for(witness, "report", count + 1, within_s=60)
            testbed.server.run(f"systemctl stop {BROKER}")
            self.began_s = time.monotonic()
            self.before = messages.received()
        self.is_over = False

    def end(self) -> list[ReceivedMessage]:
        """Start the broker when the time is over; return the messages that the boards then send,
        also those of boards that were restarted."""
        time.sleep(max(0.0, self.began_s + AWAY_S - time.monotonic()))
        with self._unreachable():
            self.bring_back()
            self._yard.server.wait_for("ss --tcp --listening --numeric | grep -q :8883", 120)
            context = listener(self._yard)
            messages = context.__enter__()
        try:
            for name in self._yard.boards:
                messages.wait_for(name, "report", 1, RETURN_S)
            time.sleep(DRAINED_S)
            return messages.received()
        finally:
            context.__exit__(None, None, None)

    def bring_back(self) -> None:
        """Start the broker."""
        self._yard.server.run(f"systemctl start {BROKER}")
        self.is_over = True

    @contextmanager
    def _unreachable(self) -> Iterator[None]:
        """Block the server's answers to the boards, as messages sent before the listener's
        subscription would be lost."""
        addresses = [board.address for board in self._yard.boards.values()]
        for address in addresses:
            self._yard.server.run(f"ip route add blackhole {address}/32")
        try:
            yield
        finally:
            for address in addresses:
                self._yard.server.run(f"ip route del blackhole {address}/32")
