"""A board loses its power while a release is installed on it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.rollout import bundles
from tests.rollout.evidence import Evidence
from tests.rollout.nspawn_testbed import NspawnTestbed

VERSION = "9.0.9"
TIMEOUT_S = 180
RELEASES = "/opt/leadline/agent/releases"


def test_the_old_release_works_on_and_the_next_run_repairs(
    deployed: NspawnTestbed, evidence: Evidence
) -> None:
    board = deployed.boards["pi-1"]
    current = "basename $(readlink /opt/leadline/agent/current)"
    before = board.run(current).stdout
    out = deployed.folder / "bundle-cut"
    release = bundles.build(out, bundles.later(deployed.folder / "cut", VERSION))
    bundle = {"leadline_bundle_dir": str(out)}
    with ThreadPoolExecutor(1) as pool:
        upgrade = pool.submit(deployed.ansible, "upgrade", limit="pi-1", extra=bundle, check=False)
        # When this folder exists, pip has begun to install, which takes some seconds.
        site = f"{RELEASES}/{release}/venv/lib/python3*/site-packages"
        board.run(f"until ls -d {site} 2>&-; do sleep 0.02; done", timeout_s=TIMEOUT_S)
        board.cut_power()
        board.start()
        board.wait_for("systemctl is-active leadline-agent", TIMEOUT_S)
        assert board.run(current).stdout == before
        board.run(f"test -d {RELEASES}/{release} -a ! -e {RELEASES}/{release}/complete")
        cut = upgrade.result()
    assert cut.code != 0
    repaired = deployed.ansible("upgrade", limit="pi-1", extra=bundle)
    assert board.run(current).stdout.strip() == release
    board.run(f"test -e {RELEASES}/{release}/complete")
    evidence.say("power-cut.txt", "\n".join((cut.recap_lines(), repaired.recap_lines())))
    deployed.ansible("rollback", limit="pi-1")
    assert board.run(current).stdout == before
