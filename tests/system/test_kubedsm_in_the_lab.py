"""KubeDSM on boards with real kubelets: in a shortage pods leave the edge for the cloud, if a
setting says so, and new pods do not wait for that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.system.kubedsm_live import Ground, on_kubelets, play

pytestmark = [pytest.mark.network, pytest.mark.cluster, pytest.mark.timeout(900)]

# A fills the edge's 11 cores with the others, and asks for nothing of it.
FULL = {"A": 7, "B": 1, "C": 1, "D": 1}
MORE = {**FULL, "C": 3}


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with on_kubelets() as found:
        yield found


@pytest.mark.parametrize("room", ["free", "capacity"])
async def test_in_a_shortage_pods_leave_the_edge_only_if_told_so(ground: Ground, room: str) -> None:
    plane, nodes, sizes = ground
    prefix = f"kubedsm-{room}"
    how = {"new_pods": "never-wait", "room": room, "targets": {"A": 0.0}, **sizes}
    account = await play(plane, nodes(prefix), prefix, [FULL, MORE], moves=True, **how)
    first, last = account.cycles
    assert first.on_edge == FULL
    assert last.on_edge == ({**MORE, "A": 5} if room == "capacity" else {**MORE, "C": 1})
    if room == "capacity":  # the new pods of C were in the cloud at once, and came from there
        assert account.to_cloud >= 2
        assert account.moves["moved"] >= 4
    moved = account.moves.get("moved", 0)
    assert 0 <= account.unexplained <= len(account.endings) - moved, account.endings
    assert account.alive == sum(MORE.values())
