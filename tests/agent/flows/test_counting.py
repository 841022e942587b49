"""leadline-flows on real connections: what it counts is what crossed the link."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.tracked_boards import (
    MASQUERADED,
    POD,
    POD6,
    SERVICE,
    SERVICE_PORT,
    SHOP,
    SHOP6,
    SHOP_PORT,
    Helper,
    TrackedBoard,
    counting,
    tracked_board,
)

pytestmark = pytest.mark.network
MOST_MISSED = 0.02
EVERY = "0.0.0.0"


@pytest.fixture(scope="module")
def board() -> Iterator[TrackedBoard]:
    with tracked_board() as made:
        yield made


@pytest.fixture
def helper(board: TrackedBoard, tmp_path: Path) -> Iterator[Helper]:
    with counting(board, tmp_path) as made:
        made.wait_for_periods(1)
        yield made


def send(board: TrackedBoard, *arguments: object) -> None:
    board.run(board.pod, *board.load(*map(str, arguments)))


def carried(helper: Helper) -> int:
    return sum(sent + received for sent, received, *_ in helper.flows().values())


def test_long_and_short_connections_and_datagrams_count_as_the_link_does(
    board: TrackedBoard, helper: Helper
) -> None:
    before = board.carried_bytes()
    with board.running(board.shop, *board.load("serve", EVERY, str(SHOP_PORT))):
        send(board, "hold", SHOP, SHOP_PORT, 5, 100, 3)
        send(board, "send", SHOP, SHOP_PORT, 1, 2_000_000)
        send(board, "send", SHOP, SHOP_PORT, 300, 300)
        send(board, "datagrams", SHOP, SHOP_PORT, 300, 400)
    helper.wait_for_periods(3)
    whole = board.carried_bytes() - before
    assert set(helper.flows()) == {(POD, SHOP, SHOP_PORT)}
    assert abs(carried(helper) - whole) <= MOST_MISSED * whole
    (counts,) = helper.flows().values()
    assert 300 + 290 <= counts[4] <= 300 + 5 + 300 + 2
    assert not any(each["lost_events"] for each in helper.written)


def test_a_service_counts_for_the_pod_that_answers(board: TrackedBoard, helper: Helper) -> None:
    before = board.carried_bytes()
    with board.running(board.shop, *board.load("serve", EVERY, str(SHOP_PORT))):
        send(board, "send", SERVICE, SERVICE_PORT, 20, 20_000)
    helper.wait_for_periods(3)
    whole = board.carried_bytes() - before
    assert set(helper.flows()) == {(POD, SHOP, SHOP_PORT)}
    assert set(helper.translations()) == {(SHOP, None, True)}
    assert abs(carried(helper) - whole) <= MOST_MISSED * whole


def test_masquerading_tells_both_the_source_and_what_is_seen_of_it(
    board: TrackedBoard, helper: Helper
) -> None:
    with board.running(board.shop, *board.load("serve", EVERY, "9090")):
        send(board, "send", SHOP, 9090, 3, 5_000)
    helper.wait_for_periods(3)
    assert set(helper.flows()) == {(POD, SHOP, 9090)}
    assert set(helper.translations()) == {(SHOP, MASQUERADED, False)}
    assert helper.flows()[POD, SHOP, 9090][4] == 3


def test_ipv6_counts_too(board: TrackedBoard, helper: Helper) -> None:
    with board.running(board.shop, *board.load("serve", "::", "6060")):
        send(board, "send", SHOP6, 6060, 4, 50_000)
    helper.wait_for_periods(3)
    counts = helper.flows()[POD6, SHOP6, 6060]
    assert counts[4] == 4
    assert counts[0] >= 4 * 50_000
    assert counts[1] >= 4 * 50_000


def test_it_ends_well_and_its_file_is_for_its_group_alone(
    board: TrackedBoard, helper: Helper
) -> None:
    assert helper.file.stat().st_mode & 0o777 == 0o640
    helper.process.send_signal(signal.SIGTERM)
    assert helper.process.wait(30) == 0


def failure(board: TrackedBoard, folder: Path, *prefix: str) -> str:
    argv = [*prefix, sys.executable, "-m", "leadline_flows", "--file", str(folder / "f.json")]
    done = subprocess.run(
        ["ip", "netns", "exec", board.board, *argv], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_without_the_capability_it_says_what_it_takes(board: TrackedBoard, tmp_path: Path) -> None:
    said = failure(board, tmp_path, "setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin")
    assert said.startswith("leadline-flows: the kernel refuses: it takes CAP_NET_ADMIN")


def test_where_bytes_are_not_counted_it_says_what_to_switch_on(
    board: TrackedBoard, tmp_path: Path
) -> None:
    board.run(board.board, "sysctl", "-qw", "net.netfilter.nf_conntrack_acct=0")
    try:
        said = failure(board, tmp_path)
    finally:
        board.run(board.board, "sysctl", "-qw", "net.netfilter.nf_conntrack_acct=1")
    assert said.endswith("sysctl -w net.netfilter.nf_conntrack_acct=1\n")
