"""`remove` leaves nothing behind, neither on the machine nor at a broker that stays."""

from __future__ import annotations

from collections.abc import Mapping

from tests.rollout.evidence import Evidence, difference
from tests.rollout.listener import listener
from tests.rollout.nspawn_testbed import NspawnTestbed


def lines_of(listing: Mapping[str, str]) -> str:
    """A listing as text: a line for each path with its description."""
    return "\n".join(f"{path} {description}" for path, description in sorted(listing.items()))


def test_a_board_that_is_taken_off_leaves_no_message_behind(
    deployed: NspawnTestbed, evidence: Evidence
) -> None:
    with listener(deployed) as before:
        for kind in ("birth", "status"):
            assert before.wait_for("pi-2", kind, 1, within_s=120)[0].is_retained
    run = deployed.ansible("remove", limit="pi-2")
    evidence.say("remove-one.txt", run.recap_lines())
    with listener(deployed) as after:
        # The subscription brings the retained messages of the others, so it would bring pi-2's.
        after.wait_for("pi-1", "birth", 1, within_s=120)
        after.wait_for("pi-1", "report", 1, within_s=60)
        assert not after.received("pi-2")
    left = difference(deployed.bare["pi-2"], deployed.machines["pi-2"].listing())
    evidence.keep("remove-pi-2-difference.txt", "\n".join(left) or "no difference")
    assert left == []


def test_remove_leaves_every_machine_as_it_was(deployed: NspawnTestbed, evidence: Evidence) -> None:
    run = deployed.ansible("remove")
    evidence.say("remove.txt", run.report())
    left = {}
    for name, after in deployed.listings().items():
        before = deployed.bare[name]
        left[name] = difference(before, after)
        evidence.keep(f"listing-{name}-before-site.txt", lines_of(before))
        evidence.keep(f"listing-{name}-after-remove.txt", lines_of(after))
        lines = "\n".join(left[name]) or "no difference"
        evidence.say(f"remove-{name}-difference.txt", f"{len(before)}, {len(after)}: {lines}")
    assert not any(left.values()), left
    for machine in deployed.machines.values():
        machine.run("! ls -d /run/leadline* /run/mosquitto* /run/credentials/leadline* 2>/dev/null")
    kinds = "serviceaccounts,secrets,roles,rolebindings,clusterroles,clusterrolebindings,leases"
    objects = deployed.server.run(f"kubectl get {kinds} --all-namespaces --output name").stdout
    assert "leadline" not in objects


def test_remove_again_changes_nothing(deployed: NspawnTestbed) -> None:
    run = deployed.ansible("remove")
    assert {host: recap.changed for host, recap in run.recap.items() if recap.changed} == {}
