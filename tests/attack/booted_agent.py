"""The agent under systemd: a bandwidth test far beyond its lease, and impossible settings."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence

from tests.attack.scene import AGENT, BOARD, Scene, restarted, unharmed, within
from tests.rollout.listener import KEYS
from tests.rollout.nspawn_testbed import NETWORK, REPOSITORY
from tests.support.check import Check

PORT = 5201
LEASED_BYTES, LEASED_MS, LEASE_TTL_MS = 30_000_000, 2000, 5000
ASKED = "1600M"
# What is under way in buffers when the server's end cuts off, and what headers add.
TOLERANCE = 2
# For strangers only the work of refusing them.
STRANGER_BYTES = 1_000_000
LISTENS_S = 10.0
TEST_S = 60.0
REPORT_S = 60.0
SETTLED_S = 5.0
DIGITS = 5000
SETTINGS = "/etc/leadline/agent.toml"
CONTROL, ELSEWHERE = f"{NETWORK}.1", f"{NETWORK}.99"


def overdrawn(scene: Scene) -> Iterator[Check]:
    """Tests of 1.6 GB, over one stream and over 128, by the lease's peer and by a stranger."""
    for whose, address, options in (
        ("its peer", CONTROL, ("-P", "128", "-l", "1M")),
        ("its peer", CONTROL, ()),
        ("a stranger", ELSEWHERE, ()),
    ):
        test = " ".join(("iperf3", "-n", ASKED, *options))
        attack = f"{test} by {whose} in a lease of {LEASED_BYTES / 1e6:.0f} MB"
        unit = scene.agent
        with restarted(unit) as limits:
            reports(scene)
            before = unit.mark()
            taken_bytes = tested(scene, address, options)
            most_bytes = TOLERANCE * LEASED_BYTES if address == CONTROL else STRANGER_BYTES
            yield Check(
                attack,
                f"at most {most_bytes / 1e6:.0f} MB are taken",
                f"{taken_bytes / 1e6:.1f} MB",
                taken_bytes <= most_bytes,
            )
            yield reports_on(scene, attack)
            yield within(attack, limits)
            yield from unharmed(attack, unit, before)


def tested(scene: Scene, peer_address: str, options: Sequence[str]) -> int:
    """Lease the board the serving end for that peer, test from CONTROL as iperf3 lets us, and
    return the bytes that went to the board."""
    board, namespaces = scene.testbed.boards[BOARD], scene.testbed.namespaces
    keys = scene.testbed.folder / "lender"
    keys.mkdir(mode=0o700, exist_ok=True)
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (keys / name).write_text(scene.testbed.server.run(f"cat {KEYS}/{name}").stdout)
    asked = {
        **{"keys": str(keys), "broker": scene.testbed.server.address, "node": BOARD},
        **{"id": f"attack-{time.monotonic_ns()}", "peer_address": peer_address, "port": PORT},
        **{"max_bytes": LEASED_BYTES, "duration_ms": LEASED_MS, "ttl_ms": LEASE_TTL_MS},
    }
    lend = [sys.executable, "-m", "tests.attack.lender", json.dumps(asked)]
    done = namespaces.run("env", "-C", REPOSITORY, *lend)
    assert done.returncode == 0, done.stderr
    board.wait_for(f"ss -ltnH | grep -q :{PORT}", LISTENS_S)
    before_bytes = to_board_bytes(scene)
    test = ["iperf3", "-c", board.address, "-p", str(PORT), "-n", ASKED, *options]
    namespaces.run("timeout", str(TEST_S), *test, timeout_s=TEST_S + 10)
    return to_board_bytes(scene) - before_bytes


def to_board_bytes(scene: Scene) -> int:
    """What the board's cable has carried to it."""
    shown = scene.testbed.namespaces.must("ip", "-s", "-j", "link", "show", "dev", f"vb-{BOARD}")
    return int(json.loads(shown)[0]["stats64"]["tx"]["bytes"])


def endless_number(scene: Scene) -> Iterator[Check]:
    """Settings with a number of 5,000 digits, at a reload."""
    attack = f"a number of {DIGITS} digits in {SETTINGS} at a reload"
    unit = scene.agent
    with restarted(unit) as limits:
        reports(scene)
        before = unit.mark()
        unit.machine.run(f"cp -a {SETTINGS} {SETTINGS}.good")
        try:
            unit.machine.run(f"sed -i 's/^interval_s = .*/interval_s = {'9' * DIGITS}/' {SETTINGS}")
            unit.machine.run(f"systemctl reload {AGENT}", check=False)
            time.sleep(SETTLED_S)
            yield from unharmed(attack, unit, before)
        finally:
            unit.machine.run(f"mv {SETTINGS}.good {SETTINGS}")
        refused = [line for line in unit.lines_since(before) if SETTINGS in line]
        shown = refused[0][:120] if refused else "nothing"
        yield Check(attack, "a line names the file", shown, bool(refused))
        yield reports_on(scene, attack)
        yield within(attack, limits)


def reports_on(scene: Scene, attack: str) -> Check:
    """Whether the controller still gets reports of the board."""
    try:
        reports(scene)
    except AssertionError:
        return Check(attack, "the board reports", f"nothing within {REPORT_S:.0f} s", held=False)
    return Check(attack, "the board reports", "it does", held=True)


def reports(scene: Scene) -> None:
    """Wait until a report of the board comes to the controller that was measured after now."""
    server = scene.testbed.server
    age = "import json, sys; print(json.load(sys.stdin)['report_age_s'])"
    look = f'{scene.leadline("node", BOARD, "-o", "json")} | python3 -c "{age}"'
    begin_s = time.monotonic()
    while True:
        found = server.run(look, check=False).stdout.strip()
        now_s = time.monotonic()
        if found not in ("", "None") and float(found) < now_s - begin_s:
            return
        assert now_s - begin_s < REPORT_S, f"{BOARD}: the newest report is {found} s old"
        time.sleep(1)
