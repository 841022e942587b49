"""KubeDSM on a live API server: two of the paper's twelve cycles, with all pods accounted for."""

from __future__ import annotations

import pytest

from tests.kube.control_plane import ControlPlane
from tests.kube.controllers import kube_controller_manager
from tests.kube.kwok import kwok
from tests.system.kubedsm_live import CONTROLLERS, logged_cycles, play

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("autoscaled", [True, False], ids=["eviction", "replacement-first"])
async def test_pods_come_back_from_the_cloud_and_none_is_lost(
    plane: ControlPlane, autoscaled: bool
) -> None:
    """From cycle 2 to 4 the second service shrinks, and others have room on the edge again."""
    _, _, before, after = logged_cycles(4)
    prefix = f"kubedsm-{'evict' if autoscaled else 'extra'}"
    with kube_controller_manager(plane, CONTROLLERS), kwok(plane) as played:
        account = await play(
            plane, played, prefix, [before, after], moves=True, autoscaled=autoscaled
        )
    first, last = account.cycles
    assert (first.wanted, last.wanted) == (before, after)
    assert last.ratio > 0.75, "without a move it is 0.69"
    assert account.moves.keys() <= {"moved"}, account.endings
    assert account.moves["moved"] >= 1
    assert account.unexplained == 0
    assert account.alive == sum(after.values())
    assert account.evictions == (account.moves["moved"] if autoscaled else 0)
