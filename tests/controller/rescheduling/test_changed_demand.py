"""DACS Section 6.2, case by case, with residuals worked by hand."""

import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.model import CPU, MEMORY, Pod, Taint
from leadline_controller.framework.view import ClusterView
from leadline_controller.rescheduling.demand import decide_changed_demand
from leadline_controller.strategies.kube_default import KubeDefault

from tests.controller.builders import GIB, node, pod, view

MASTER = Taint("node-role.kubernetes.io/control-plane", "", "NoSchedule")


def demand(cpu: str, gib: int = 1, mbps: int = 10) -> Pod:
    return pod(
        requests={"cpu": cpu, "memory": f"{gib}Gi"},
        annotations={"bandwidth-mbps": str(mbps)},
        nodeName="n1",
    )


def cluster(n2_cores: float = 4, n3_cores: float = 4) -> ClusterView:
    """n1 has 4 cores, 4 GiB and 100 Mbit/s; the pod with (1, 1, 10) is on it, beside others
    that leave (1, 2, 50)."""
    empty = view(
        [
            node("n1", cores=4, gib=4, bandwidth_mbps=100.0),
            node("n2", cores=n2_cores, gib=4, bandwidth_mbps=100.0),
            node("n3", cores=n3_cores, gib=4, bandwidth_mbps=100.0),
            node("m", cores=64, gib=64, bandwidth_mbps=1000.0, taints=(MASTER,)),
        ],
        requested={CPU: [2000, 0, 0, 0], MEMORY: [GIB, 0, 0, 0]},
        bandwidth_requested_mbps=[40.0, 0.0, 0.0, 0.0],
    )
    return empty.with_placement(demand("1"), 0)


def decide_change(changed: Pod, before: ClusterView | None = None) -> tuple[str, str]:
    around = cluster() if before is None else before
    return decide_changed_demand(around, demand("1"), changed, Rule(KubeDefault(), FILTERS))


@pytest.mark.parametrize(
    "changed",
    # 1, 2, 50 more is exactly what is left.
    [demand("2", 3, 60), demand("1500m"), demand("500m", 1, 5)],
)
def test_it_stays_where_there_is_room_for_the_difference(changed: Pod) -> None:
    assert decide_change(changed) == ("stay", "n1")


@pytest.mark.parametrize("changed", [demand("2001m"), demand("1", 4), demand("1", 1, 61)])
def test_it_migrates_when_any_resource_is_short(changed: Pod) -> None:
    assert decide_change(changed, cluster(n2_cores=0.5)) == ("migrate", "n3")


def test_of_several_nodes_with_room_the_strategy_takes_one() -> None:
    before = cluster().with_placement(pod("other", requests={"cpu": "1"}), 1)
    assert decide_change(demand("3"), before) == ("migrate", "n3")


@pytest.mark.parametrize(
    ("n2_cores", "n3_cores", "expected"),
    # Without the pod n1 has min{2, 3} left; n2 and n3 have min{cores, 4}. The master is out.
    [(4, 3, "n2"), (3, 4, "n3"), (1, 1.5, "n1"), (2, 2, "n1")],
)
def test_if_it_fits_nowhere_it_goes_where_the_most_is_left(
    n2_cores: float, n3_cores: float, expected: str
) -> None:
    assert decide_change(demand("5"), cluster(n2_cores, n3_cores)) == ("most left", expected)


def test_a_link_of_unknown_bandwidth_has_room_for_no_more_but_keeps_what_it_has() -> None:
    blind = view([node("n1")]).with_placement(demand("1"), 0)
    assert decide_change(demand("2"), blind)[0] == "stay"
    assert decide_change(demand("1", 1, 11), blind)[0] == "most left"
