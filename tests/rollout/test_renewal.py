"""`site` renews a certificate that is about to expire, and changes nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from leadline_wire.topics import Kind

from tests.rollout.certificates import days_left, sign
from tests.rollout.evidence import Evidence, difference
from tests.rollout.listener import listener
from tests.rollout.nspawn_testbed import NspawnTestbed

NEAR_DAYS = 20
BROKER = "/etc/mosquitto/leadline/cert.pem"
AGENT = "/etc/leadline/pki/agent/cert.pem"
# With which files a release was started: their hashes.
RUNNING = "/opt/leadline/agent/running"
# What daemons and kubectl keep for themselves.
MOVING = ("/var/lib/private/", "/var/lib/leadline-", "/var/lib/rancher/", "/root/.kube/cache/")


def shown_by_the_broker(testbed: NspawnTestbed) -> str:
    """The certificate with which the broker answers."""
    keys = testbed.folder / "pki" / "agent"
    connect = ("openssl", "s_client", "-connect", f"{testbed.server.address}:8883")
    own = ("-cert", keys / "pi-1.pem", "-key", keys / "pi-1.key")
    text = testbed.namespaces.run(*connect, *own, timeout_s=20).stdout
    return text[text.index("-----BEGIN") : text.index("-----END")] + "-----END CERTIFICATE-----\n"


def started(testbed: NspawnTestbed) -> dict[str, str]:
    """The process of each daemon, by machine and unit."""
    units = ("leadline-agent", "leadline-controller", "mosquitto")
    return {
        f"{name} {unit}": machine.run(f"systemctl show -p MainPID --value {unit}").stdout.strip()
        for name, machine in testbed.machines.items()
        for unit in units
    }


def make_old(testbed: NspawnTestbed, purpose: str, host: str, there: str, folder: Path) -> None:
    """Have a host's certificate end soon, here and there."""
    sign(testbed, purpose, host, NEAR_DAYS, folder / "near.pem")
    text = (folder / "near.pem").read_text()
    (testbed.folder / "pki" / purpose / f"{host}.pem").write_text(text)
    testbed.machines[host].run(f"cat > {there} <<'END'\n{text}END")


def test_the_days_that_are_left_are_counted(tmp_path: Path) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "20", "-subj", "/CN=x", "-keyout", str(tmp_path / "key")]
    pem = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert days_left(pem) == NEAR_DAYS - 1  # a moment of the twentieth is gone


@pytest.mark.parametrize("with_check", [True, False])
def test_site_renews_what_ends_soon_and_changes_nothing_else(
    deployed: NspawnTestbed, evidence: Evidence, tmp_path: Path, with_check: bool
) -> None:
    """First in check mode, which reports exactly what then happens."""
    if with_check:
        make_old(deployed, "agent", "pi-2", AGENT, tmp_path)
        make_old(deployed, "broker", "server", BROKER, tmp_path)
        deployed.server.run("systemctl reload mosquitto")
        deployed.boards["pi-2"].run("systemctl restart leadline-agent")
    assert days_left(deployed.boards["pi-2"].run(f"cat {AGENT}").stdout) < NEAR_DAYS
    assert days_left(shown_by_the_broker(deployed)) < NEAR_DAYS
    files = {name: machine.listing() for name, machine in deployed.machines.items()}
    daemons = started(deployed)
    with listener(deployed) as messages:
        messages.wait_for("pi-1", Kind.REPORT, 1, within_s=60)
        run = deployed.ansible("site", *(["--check"] if with_check else []))
        offline = [
            each
            for each in messages.received()
            if each.kind == Kind.STATUS and not each.is_retained
        ]
    changed = {host for host, recap in run.recap.items() if recap.changed}
    assert changed == {"pi-2", "server"}
    restarted = {which for which, pid in started(deployed).items() if pid != daemons[which]}
    renewed = {
        name: [line for line in difference(files[name], machine.listing()) if not moves(line)]
        for name, machine in deployed.machines.items()
    }
    if with_check:
        assert restarted == set()
        assert not any(renewed.values())
        return
    evidence.say("renewal-recap.txt", run.recap_lines())
    assert restarted == {"pi-2 leadline-agent"}
    assert {each.node for each in offline} == {"pi-2"}  # nobody else lost the broker
    assert [line.split(": ")[0] for line in renewed["pi-2"]] == [f"~ {AGENT}", f"~ {RUNNING}"]
    assert [line.split(": ")[0] for line in renewed["server"]] == [f"~ {BROKER}"]
    assert not any(renewed[name] for name in renewed.keys() - {"pi-2", "server"})
    assert days_left(deployed.boards["pi-2"].run(f"cat {AGENT}").stdout) > 700
    assert days_left(shown_by_the_broker(deployed)) > 700


def moves(line: str) -> bool:
    """Whether a line of a difference is about what daemons write by themselves."""
    return line[2:].startswith(MOVING)
