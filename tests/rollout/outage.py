"""Ten minutes without a broker, during which other chapters go on with their boards.

It begins with the first test that asks for it and ends in `test_broker_away`. One board, the
witness, is left alone meanwhile; the others may be frozen, rebooted and cut off.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.rollout.listener import Heard, listener
from tests.rollout.nspawn_testbed import Yard

AWAY_S = 600.0
BROKER = "mosquitto"
# The longest pause of an agent between two attempts, what an attempt may take, and the rest.
RETURN_S = 150.0
# So long after a board's first word everything that it kept has come, at 50 messages a second.
DRAINED_S = 30.0


class Outage:
    """The broker is away from `began_s` on (monotonic clock); `before` is what was heard then."""

    def __init__(self, yard: Yard, witness: str = "pi-1") -> None:
        """Take the broker away, just after the witness was heard."""
        self.witness = witness
        self._yard = yard
        with listener(yard) as ears:
            for name in yard.boards:
                ears.wait_for(name, "report", 1, within_s=90)
            count = len(ears.heard(witness, "report"))
            ears.wait_for(witness, "report", count + 1, within_s=60)
            yard.server.run(f"systemctl stop {BROKER}")
            self.began_s = time.monotonic()
            self.before = ears.heard()
        self.is_over = False

    def end(self) -> list[Heard]:
        """Bring the broker back when the time is over; what the boards then say, whoever had to
        start anew meanwhile included."""
        time.sleep(max(0.0, self.began_s + AWAY_S - time.monotonic()))
        with self._unreachable():
            self.bring_back()
            self._yard.server.wait_for("ss --tcp --listening --numeric | grep -q :8883", 30)
            ears_of = listener(self._yard)
            ears = ears_of.__enter__()
        try:
            for name in self._yard.boards:
                ears.wait_for(name, "report", 1, RETURN_S)
            time.sleep(DRAINED_S)
            return ears.heard()
        finally:
            ears_of.__exit__(None, None, None)

    def bring_back(self) -> None:
        """Start the broker."""
        self._yard.server.run(f"systemctl start {BROKER}")
        self.is_over = True

    @contextmanager
    def _unreachable(self) -> Iterator[None]:
        """No board gets an answer of the server yet: what it sent before we have subscribed would
        be told to nobody."""
        addresses = [board.address for board in self._yard.boards.values()]
        for address in addresses:
            self._yard.server.run(f"ip route add blackhole {address}/32")
        try:
            yield
        finally:
            for address in addresses:
                self._yard.server.run(f"ip route del blackhole {address}/32")
