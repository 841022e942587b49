"""Two controllers on one cluster, killed and robbed in every way: each pod is bound exactly once,
none is forgotten, and only who holds the Lease binds. The API server's audit log is the witness.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from leadline_controller.scheduling.scheduler import BINDINGS_AT_ONCE

from tests.controller.telemetry.board_builder import Board
from tests.controller.telemetry.wire_client import connected
from tests.system.audit import Write, out_of_turn
from tests.system.daemons import eventually
from tests.system.pair import CLUSTER, LEASE, LEASE_S, NODES, Candidate, Pair, pair

pytestmark = [pytest.mark.cluster, pytest.mark.broker]

ONCE = 1
TAKE_OVER_S = 15.0
_told: list[str] = []


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair(tmp_path_factory.mktemp("pair")) as running:
        yield running
    print("\n" + "\n".join(_told))


@pytest.fixture
def scene(whole: Pair) -> Iterator[Pair]:
    try:
        yield whole
    finally:
        whole.clean()


def check(scene: Pair, prefix: str, count: int) -> list[Write]:
    """All are bound, each by one binding that worked. Returns those that were out of turn."""
    where = scene.wait_all_bound(prefix, count)
    tally = scene.tally(prefix, where)
    bindings = scene.audit.bindings(prefix)
    codes = Counter(write.code for write in bindings)
    by = [sum(write.by == one.credential for write in bindings) for one in scene.candidates]
    forgotten = count - len([name for name, node in where.items() if node])
    _told.append(
        f"{prefix}: {count} pods, bound exactly once {tally[ONCE]}, bound with the answer lost "
        f"{tally[0]}, more than once {count - tally[ONCE] - tally[0]}, forgotten {forgotten}; "
        f"answers {dict(codes)}, asked for by {by}"
    )
    assert set(tally) <= {0, ONCE}
    # A binding may have been done although the answer was lost with the server that gave it.
    unanswered = {write.name for write in bindings if not write.worked}
    assert tally[0] <= len(unanswered)
    return out_of_turn(bindings, scene.audit.leases(), LEASE_S)


def took_over_s(scene: Pair, old: Candidate, new: Candidate) -> float:
    """From when the old one's last renewal reached the server until the new one had the Lease."""
    end_s = scene.renewals(old)[-1].received_s
    return min(w.done_s for w in scene.renewals(new) if w.done_s > end_s) - end_s


def test_one_decides_and_the_other_is_ready(scene: Pair) -> None:
    leader, standby = scene.both_run()
    with scene.burst("first", 20):
        pass
    assert check(scene, "first", 20) == []
    assert {write.by for write in scene.audit.bindings("first")} == {leader.credential}
    told = standby.ask("placements")["placements"]
    assert told == []
    for one in (leader, standby):
        assert {each["name"] for each in one.ask("nodes")["nodes"]} == set(NODES)


@contextmanager
def probed(scene: Pair) -> Iterator[Callable[[], list[str]]]:
    """Two boards; yields what tells, for each bandwidth test that they were to make, by whom."""
    boards = [Board(name, CLUSTER) for name in NODES[:2]]

    def provers() -> list[str]:
        tests = [lease.bandwidth.lease_id for lease in client.leases]
        return [lease_id.partition("-")[0] for lease_id in tests if lease_id]

    with connected(scene.broker) as client:
        client.listen(boards[0])
        for board in boards:
            client.send(board, board.birth())
        yield provers


def test_killed_in_the_middle_of_500_pods(scene: Pair) -> None:
    leader, standby = scene.both_run()
    with probed(scene) as provers:
        (first,) = set(eventually(provers, bool, "the network is probed"))
        with scene.burst("killed", 500):
            scene.wait_some_bound("killed", 150)
            leader.daemon.stop(signal.SIGKILL)
        before = len({write.name for write in scene.audit.bindings("killed")})
        assert before < 500
        assert check(scene, "killed", 500) == []
        then = eventually(provers, lambda seen: seen[-1] != first, "the other has it probed")
    assert set(then[: then.count(first)]) == {first}
    assert scene.leader() is standby
    took_s = took_over_s(scene, leader, standby)
    _told.append(f"killed: 1 kill, {before} of 500 bound before, taken over after {took_s:.1f} s")
    assert took_s < TAKE_OVER_S


@pytest.mark.parametrize("bound", [1, 250])
def test_killed_with_as_many_bindings_on_their_way_as_may_be(scene: Pair, bound: int) -> None:
    """All 500 wait when it begins, so none of its slots is free when it is killed."""
    prefix = f"rush-{bound}"
    leader, standby = scene.both_run()
    for one in (leader, standby):
        one.signal(signal.SIGSTOP)
    with scene.burst(prefix, 500):
        pass
    for one in (leader, standby):
        one.signal(signal.SIGCONT)
    scene.wait_some_bound(prefix, bound)
    leader = scene.wait_leader()
    leader.daemon.stop(signal.SIGKILL)
    killed_s = time.time()
    before = len({write.name for write in scene.audit.bindings(prefix)})
    assert before < 500
    assert check(scene, prefix, 500) == []
    # The last renewal may be older than the other one could know, stopped as it was.
    taken = scene.renewals(scene.other(leader))
    took_s = min(write.done_s for write in taken if write.done_s > killed_s) - killed_s
    _told.append(f"{prefix}: 1 kill, {before} of 500 bound before, taken over after {took_s:.1f} s")
    assert took_s < TAKE_OVER_S


def test_stopped_past_its_lease_it_goes_on_and_binds_nothing_with_it(scene: Pair) -> None:
    leader, standby = scene.both_run()
    with scene.burst("stopped", 300):
        scene.wait_some_bound("stopped", 60)
        leader.signal(signal.SIGSTOP)
        scene.wait_leader(other_than=leader)
        scene.wait_some_bound("stopped", 120)
        leader.signal(signal.SIGCONT)
    assert check(scene, "stopped", 300) == []
    with scene.burst("later", 20):
        pass
    assert check(scene, "later", 20) == []
    assert {write.by for write in scene.audit.bindings("later")} == {standby.credential}
    took_s = took_over_s(scene, leader, standby)
    _told.append(f"stopped: taken over after {took_s:.1f} s")
    assert took_s < TAKE_OVER_S
    assert "standing by" in leader.daemon.lines()[-1]


def test_the_api_server_restarts_in_the_middle(scene: Pair) -> None:
    scene.both_run()
    with scene.burst("restart", 200):
        scene.wait_some_bound("restart", 50)
        scene.plane.restart()
    assert check(scene, "restart", 200) == []


@pytest.mark.parametrize("pause_s", [3, 13])
def test_etcd_stands_still_in_the_middle(scene: Pair, pause_s: int) -> None:
    scene.both_run()
    prefix = f"etcd-{pause_s}"
    with scene.burst(prefix, 200):
        scene.wait_some_bound(prefix, 50)
        scene.pause_etcd()
        time.sleep(pause_s)
        scene.continue_etcd()
    assert check(scene, prefix, 200) == []


def test_etcd_stands_still_with_as_many_bindings_on_their_way_as_may_be(scene: Pair) -> None:
    """What the API server then says of a binding, that of 409 too, is not the pod's end."""
    both = scene.both_run()
    for one in both:
        one.signal(signal.SIGSTOP)
    with scene.burst("still", 500):
        pass
    for one in both:
        one.signal(signal.SIGCONT)
    scene.wait_some_bound("still", 50)
    scene.pause_etcd()
    time.sleep(13)
    scene.continue_etcd()
    assert check(scene, "still", 500) == []


def test_the_lease_is_stolen_in_the_middle(scene: Pair) -> None:
    leader, _ = scene.both_run()
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    stolen = {"holderIdentity": "thief", "leaseDurationSeconds": 8, "renewTime": now}
    with scene.burst("stolen", 300):
        scene.wait_some_bound("stolen", 60)
        scene.api.patch(LEASE, {"spec": stolen})
    late = check(scene, "stolen", 300)
    (theft,) = [write for write in scene.audit.leases() if write.to == "thief"]
    # It can't know before it looks at the Lease; from then on it begins no binding. The times are
    # the server's: what was on its way during that look may arrive after it, and no more is ever
    # on its way than there are slots.
    knew_s = next(
        look.received_s
        for look in scene.audit.looks()
        if look.by == leader.credential and look.received_s > theft.done_s
    )
    _told.append(f"stolen: known after {knew_s - theft.done_s:.1f} s, {len(late)} bound until then")
    on_their_way = [write for write in late if write.received_s > knew_s]
    assert len(on_their_way) <= BINDINGS_AT_ONCE
    assert all(write.received_s - knew_s < 1.0 for write in on_their_way)


def test_both_are_killed_and_one_comes_back(scene: Pair) -> None:
    scene.both_run()
    with scene.burst("both", 200):
        scene.wait_some_bound("both", 50)
        for one in scene.candidates:
            one.daemon.stop(signal.SIGKILL)
        scene.candidates[1].daemon.start()
    assert check(scene, "both", 200) == []
    _told.append("both: 2 kills")


def test_a_clean_end_hands_over_at_once(scene: Pair) -> None:
    leader, standby = scene.both_run()
    with scene.burst("clean", 200):
        scene.wait_some_bound("clean", 50)
        assert leader.daemon.stop() == 0
    assert check(scene, "clean", 200) == []
    assert scene.leader() is standby
    released = [write for write in scene.renewals(leader) if not write.to]
    assert len(released) == 1
    _told.append(f"clean: handed over after {took_over_s(scene, leader, standby):.1f} s")


def test_nobody_said_anything_that_a_person_must_not_see(scene: Pair) -> None:
    for one in scene.candidates:
        assert one.daemon.said("Traceback") == 0
        assert [line for line in one.daemon.lines() if line.startswith(("ERROR", "CRITICAL"))] == []
