"""`site` renews a certificate that expires soon, and changes nothing else."""

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
# The hashes of the files with which the release was started.
RUNNING = "/opt/leadline/agent/running"
# The state that daemons and kubectl write.
STATE = ("/var/lib/private/", "/var/lib/leadline-", "/var/lib/rancher/", "/root/.kube/cache/")


def broker_certificate(testbed: NspawnTestbed) -> str:
    """The certificate that the broker sends."""
    keys = testbed.folder / "pki" / "agent"
    connect = ("openssl", "s_client", "-connect", f"{testbed.server.address}:8883")
    own = ("-cert", keys / "pi-1.pem", "-key", keys / "pi-1.key")
    text = testbed.namespaces.run(*connect, *own, timeout_s=20).stdout
    return text[text.index("-----BEGIN") : text.index("-----END")] + "-----END CERTIFICATE-----\n"


def main_pids(testbed: NspawnTestbed) -> dict[str, str]:
    """The main process of each daemon, by machine and unit."""
    units = ("leadline-agent", "leadline-controller", "mosquitto")
    return {
        f"{name} {unit}": machine.run(f"systemctl show -p MainPID --value {unit}").stdout.strip()
        for name, machine in testbed.machines.items()
        for unit in units
    }


def shorten(testbed: NspawnTestbed, purpose: str, host: str, path: str, folder: Path) -> None:
    """Replace a host's certificate, here and at `path` on the host, by one that expires soon."""
    sign(testbed, purpose, host, NEAR_DAYS, folder / "near.pem")
    text = (folder / "near.pem").read_text()
    (testbed.folder / "pki" / purpose / f"{host}.pem").write_text(text)
    testbed.machines[host].run(f"cat > {path} <<'END'\n{text}END")


def test_the_days_that_are_left_are_counted(tmp_path: Path) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "20", "-subj", "/CN=x", "-keyout", str(tmp_path / "key")]
    pem = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert days_left(pem) == NEAR_DAYS - 1  # the twentieth day is not whole any more


@pytest.mark.parametrize("with_check", [True, False])
def test_site_renews_what_ends_soon_and_changes_nothing_else(
    deployed: NspawnTestbed, evidence: Evidence, tmp_path: Path, with_check: bool
) -> None:
    """The run in check mode comes first. It reports the same changes and makes none."""
    if with_check:
        shorten(deployed, "agent", "pi-2", AGENT, tmp_path)
        shorten(deployed, "broker", "server", BROKER, tmp_path)
        deployed.server.run("systemctl reload mosquitto")
        deployed.boards["pi-2"].run("systemctl restart leadline-agent")
    assert days_left(deployed.boards["pi-2"].run(f"cat {AGENT}").stdout) < NEAR_DAYS
    assert days_left(broker_certificate(deployed)) < NEAR_DAYS
    files = deployed.listings()
    pids = main_pids(deployed)
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
    restarted = {unit for unit, pid in main_pids(deployed).items() if pid != pids[unit]}
    renewed = {
        name: [line for line in difference(files[name], listing) if not is_state(line)]
        for name, listing in deployed.listings().items()
    }
    if with_check:
        assert restarted == set()
        assert not any(renewed.values())
        return
    evidence.say("renewal-recap.txt", run.recap_lines())
    assert restarted == {"pi-2 leadline-agent"}
    assert {each.node for each in offline} == {"pi-2"}  # no other agent lost the broker
    assert [line.split(": ")[0] for line in renewed["pi-2"]] == [f"~ {AGENT}", f"~ {RUNNING}"]
    assert [line.split(": ")[0] for line in renewed["server"]] == [f"~ {BROKER}"]
    assert not any(renewed[name] for name in renewed.keys() - {"pi-2", "server"})
    assert days_left(deployed.boards["pi-2"].run(f"cat {AGENT}").stdout) > 700
    assert days_left(broker_certificate(deployed)) > 700


def is_state(line: str) -> bool:
    """Whether a line of a difference is about state that daemons write."""
    return line[2:].startswith(STATE)
