"""The broker is away for minutes, and no report that fits into the boards' buffers is lost."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping

import pytest

from tests.rollout.broker_outage import AWAY_S, BrokerOutage
from tests.rollout.evidence import Evidence
from tests.rollout.listener import ReceivedMessage
from tests.rollout.nspawn_testbed import NspawnTestbed
from tests.rollout.unit_runs import AGENT, CONTROLLER, WATCHDOG_S, Run, current_run

# The daemons that work while the broker is away: one agent all the time, and the controller since
# systemd restarted it.
AT_WORK = (("pi-1", AGENT), ("server", CONTROLLER))
# By then systemd would have ended one that does not answer it.
WORKED_S = max(2 * WATCHDOG_S, AWAY_S / 2)


def sequences(messages: Iterable[ReceivedMessage]) -> Mapping[tuple[str, int], set[int]]:
    """(board, session) -> the sequence numbers that arrived, without retained messages."""
    found: dict[tuple[str, int], set[int]] = defaultdict(set)
    for each in messages:
        if each.sequence and not each.is_retained:
            found[each.node, each.session].add(each.sequence)
    return found


def missing(found: set[int]) -> list[int]:
    """The numbers between the first and the last that did not arrive."""
    return sorted(set(range(min(found), max(found) + 1)) - found)


@pytest.fixture(scope="module")
def at_work(deployed: NspawnTestbed, outage: BrokerOutage) -> dict[str, Run]:
    """By machine, the run of its daemon while the broker is away, once it lasted for `WORKED_S`."""
    for name, unit in AT_WORK:
        started = f"$(systemctl show --property ActiveEnterTimestampMonotonic --value {unit})"
        running_s = f"$(cut -d. -f1 /proc/uptime) - {started} / 1000000"
        is_old = f"systemctl is-active {unit} && test $(({running_s})) -gt {WORKED_S:.0f}"
        deployed.machines[name].wait_for(is_old, 3 * WORKED_S)
    return {name: current_run(deployed.machines[name], unit) for name, unit in AT_WORK}


def test_no_report_of_an_outage_is_lost(
    deployed: NspawnTestbed, outage: BrokerOutage, at_work: Mapping[str, Run], evidence: Evidence
) -> None:
    after = outage.end()
    arrived = sequences((*outage.before, *after))
    reports = {
        name: sum(each.node == name and each.kind == "report" for each in after)
        for name in deployed.boards
    }
    lines = [
        f"{name} session {session}: {len(found)} messages, {min(found)} to {max(found)}, "
        f"lost {missing(found)}"
        for (name, session), found in sorted(arrived.items())
    ]
    lines += [f"{name}: {count} reports after the outage" for name, count in reports.items()]
    evidence.say("broker-away.txt", "\n".join(lines))
    assert {key: missing(found) for key, found in arrived.items() if missing(found)} == {}
    # The witness never restarted, so it has one session, and its numbers go on after the outage.
    sessions = [session for name, session in arrived if name == outage.witness]
    assert len(sessions) == 1
    settings = deployed.boards[outage.witness].run("cat /etc/leadline/agent.toml").stdout
    interval_s = tomllib.loads(settings).get("interval_s", 10)
    assert reports[outage.witness] >= AWAY_S / interval_s


@pytest.mark.parametrize(("name", "unit"), AT_WORK)
def test_without_a_broker_the_watchdog_ended_nobody_that_worked(
    deployed: NspawnTestbed, at_work: Mapping[str, Run], name: str, unit: str
) -> None:
    assert current_run(deployed.machines[name], unit) == at_work[name]
    assert not any("atchdog" in line for line in at_work[name].systemd_log())
