"""KubeDSM on a live API server: the edge fills, and has room again; pods are accounted for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kube.control_plane import ControlPlane
from tests.kube.controllers import kube_controller_manager
from tests.kube.kwok import Kwok, kwok
from tests.system.kubedsm_live import CONTROLLERS, paper_nodes, play

pytestmark = pytest.mark.cluster


FULL = {"A": 3, "B": 1, "C": 1, "D": 4}
ROOMY = {**FULL, "D": 1}


@pytest.fixture(scope="module")
def played(plane: ControlPlane) -> Iterator[Kwok]:
    with kube_controller_manager(plane, CONTROLLERS), kwok(plane) as running:
        yield running


@pytest.mark.parametrize("autoscaled", [True, False], ids=["eviction", "replacement-first"])
async def test_pods_come_back_from_the_cloud_and_none_is_lost(
    plane: ControlPlane, played: Kwok, autoscaled: bool
) -> None:
    """Service D fills the edge, so that two pods of A are in the cloud until D shrinks."""
    prefix = f"kubedsm-{'evict' if autoscaled else 'extra'}"
    cycles, targets, nodes = [FULL, ROOMY], {"A": 0.0}, paper_nodes(played, prefix)
    account = await play(
        *(plane, nodes, prefix, cycles), moves=True, autoscaled=autoscaled, targets=targets
    )
    first, last = account.cycles
    assert sum(FULL.values()) - sum(first.on_edge.values()) == 2
    assert last.on_edge == ROOMY
    moved = account.moves["moved"]
    assert moved >= 2
    # The ReplicaSet may remove a pod of D that is about to move.
    assert 0 <= account.unexplained <= len(account.endings) - moved, account.endings
    assert account.alive == sum(ROOMY.values())
    assert account.evictions >= 2 if autoscaled else account.evictions == 0


@pytest.mark.parametrize("worst_first", [True, False])
async def test_a_scale_down_removes_the_replica_in_the_cloud_first_if_told_so(
    plane: ControlPlane, played: Kwok, worst_first: bool
) -> None:
    """Of five pods of D four are on the three edge boards. By itself the ReplicaSet first removes
    the pods that share a board."""
    prefix = f"kubedsm-{'worst' if worst_first else 'any'}"
    five, three = ({"A": 2, "B": 1, "C": 1, "D": count} for count in (5, 3))
    account = await play(
        *(plane, paper_nodes(played, prefix), prefix, [five, three]),
        moves=False,
        worst_first=worst_first,
        targets={"D": 0.0},
    )
    first, last = account.cycles
    assert first.on_edge["D"] == 4
    assert last.on_edge["D"] == (3 if worst_first else 2)
