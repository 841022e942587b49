"""Leadline's filters against kube-scheduler's own plugins, on thousands of generated cases."""

from __future__ import annotations

import pytest
from leadline_controller.filters import FILTERS

from tests.kube.compare import OVERALL, Tally, compared
from tests.kube.generator import THEMES, made
from tests.kube.oracle import Oracle

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

CASES = 400
# In the cases about a predicate, its plugin accepts and refuses at least this many nodes.
LEAST = 100
# They have to look at the nodes, whatever the pod asks for.
ALWAYS_LOOK = {"TaintToleration", "NodeResourcesFit"}
OURS_ALONE = {"NodeReady", "NodeBandwidthFit", "PeerRoundTrip"}


@pytest.fixture(scope="module")
def tallies() -> tuple[Tally, Tally]:
    with Oracle() as oracle:
        found = compared(oracle, CASES)
    print(*found[0].rows(), sep="\n")
    return found


def test_leadline_accepts_no_node_that_kube_scheduler_rejects(
    tallies: tuple[Tally, Tally],
) -> None:
    stored, written = tallies
    assert stored.unsafe == []
    assert written.unsafe == []


def test_leadline_alone_rejects_only_what_it_does_not_support(tallies: tuple[Tally, Tally]) -> None:
    for tally in tallies:
        assert set(tally.stricter) <= {"VolumeBinding", OVERALL}
        assert all("does not model" in why for why in tally.stricter["VolumeBinding"])
        assert tally.leadline_alone[OVERALL] < 0.03 * tally.both_accept[OVERALL]


@pytest.mark.parametrize("plugin", THEMES)
@pytest.mark.parametrize("accepts", [True, False])
def test_every_predicate_accepts_and_rejects_nodes(
    tallies: tuple[Tally, Tally], plugin: str, accepts: bool
) -> None:
    assert tallies[0].themed[plugin, accepts] >= LEAST


@pytest.mark.parametrize("name", sorted(set(FILTERS) - OURS_ALONE))
def test_each_filter_runs_with_and_without_its_shortcut(
    tallies: tuple[Tally, Tally], name: str
) -> None:
    looked = tallies[0].looked
    assert looked[name, True] >= LEAST
    assert (looked[name, False] >= LEAST) == (name not in ALWAYS_LOOK)


def test_every_filter_has_cases() -> None:
    assert set(FILTERS) - OURS_ALONE == set(THEMES) - {"SchedulingGates"}


def test_every_plugin_has_cases(tallies: tuple[Tally, Tally]) -> None:
    """A plugin that a later Kubernetes release adds fails here until a filter supports it."""
    assert set(tallies[0].both_accept) - {OVERALL} == set(THEMES)


def test_a_seed_reproduces_its_case() -> None:
    assert made(7, "InterPodAffinity") == made(7, "InterPodAffinity")
    assert made(7, "InterPodAffinity") != made(8, "InterPodAffinity")
