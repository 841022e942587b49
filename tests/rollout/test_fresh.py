"""On bare boards, check mode changes nothing, and a wrong argument fails before any change."""

from __future__ import annotations

import pytest

from tests.rollout.evidence import Evidence, difference
from tests.rollout.nspawn_testbed import NspawnTestbed


def assert_unchanged(testbed: NspawnTestbed, what: str) -> None:
    """Assert that every machine's disk is as it was after its first boot."""
    for name, listing in testbed.listings().items():
        found = difference(testbed.bare[name], listing)
        assert not found, f"{what} changed {name}:\n" + "\n".join(found)


def test_a_look_at_bare_boards_fails_nothing_and_changes_nothing(
    testbed: NspawnTestbed, evidence: Evidence
) -> None:
    run = testbed.ansible("site", "--check", "--diff")
    evidence.say("fresh-check.txt", run.recap_lines())
    assert set(run.recap) == set(testbed.machines)
    assert all(recap.failed == recap.unreachable == 0 for recap in run.recap.values())
    assert_unchanged(testbed, "a check")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"agent_interval_s": "often"}, "agent_interval_s"),
        ({"agent_interval_s": 0}, "interval"),
        ({"agent_settings": {"bufer": {"max_bytes": 4096}}}, "bufer"),
        ({"leadline_bundle_dir": "/nowhere"}, "make bundle"),
    ],
    ids=["type", "range", "setting", "bundle"],
)
def test_a_wrong_argument_fails_before_anything_changes(
    testbed: NspawnTestbed,
    evidence: Evidence,
    request: pytest.FixtureRequest,
    wrong: dict[str, object],
    said: str,
) -> None:
    run = testbed.ansible("site", extra=wrong, check=False)
    evidence.keep(f"refused-{request.node.callspec.id}.txt", run.output)
    assert run.code != 0
    assert said in run.output
    assert sum(recap.changed for recap in run.recap.values()) == 0
    assert_unchanged(testbed, f"a run with {wrong}")
