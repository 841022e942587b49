"""The attacks of `make attack PART=agent`, with small counts."""

from collections.abc import Iterable

import pytest

from tests.attack import agent
from tests.attack.iperf3_server import Lie
from tests.support.check import Check

pytestmark = [pytest.mark.broker, pytest.mark.network]


def held(checks: Iterable[Check]) -> None:
    found = list(checks)
    assert found
    assert not [str(check) for check in found if not check.held]


def test_a_server_that_lies() -> None:
    lies = (Lie(end_time="5e6"), Lie(end_time="1e308"), Lie(size=2**32 - 1), Lie(streams=2))
    held(agent.lying_peer(lies))


def test_echo_replies_that_lie() -> None:
    held(agent.odd_echoes(rounds=3))


def test_clients_that_take_more_than_was_leased() -> None:
    leased = ("-n", str(agent.LEASED_BYTES))
    clients = (
        ("-t 2, no pace", ("-t", "2")),
        ("-n as leased -P 128", (*leased, "-P", "128")),
        ("-n as leased, too slow", (*leased, "-l", "16K", "-b", "10M")),
    )
    held(agent.greedy_clients(clients, seconds=2))


def test_a_stranger_beside_an_honest_test() -> None:
    held(agent.stranger_beside_an_honest_test(tests=1))


def test_a_flood_of_odd_leases() -> None:
    held(agent.odd_leases(count=300))


def test_settings_that_cannot_be_read() -> None:
    held(agent.bad_settings(agent.BAD_SETTINGS[:2]))
