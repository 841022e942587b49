"""What a workload's pods use, of the readings of each."""

from dataclasses import replace
from statistics import median

from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.cluster.pod_usage import usage_by_workload
from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import PodUsage

AT_S = 1e9
amounts = st.floats(0, 1e12)


def pod(service: str, name: str) -> Pod:
    return Pod("default", name, labels={"app": service}, node_name="n1", ready=True)


@given(
    st.dictionaries(
        st.sampled_from("abc"), st.lists(st.tuples(amounts, amounts), min_size=1, max_size=5)
    )
)
def test_it_is_the_median_over_the_pods_that_run_and_are_measured(
    used: dict[str, list[tuple[float, float]]],
) -> None:
    pods = [pod(app, f"{app}{n}") for app, each in used.items() for n in range(len(each))]
    found = [
        PodUsage("default", f"{app}{n}", cpu, memory, AT_S)
        for app, each in used.items()
        for n, (cpu, memory) in enumerate(each)
    ]
    # None of these counts: strangers, those that do not run well, old readings, pods without one.
    found += [
        PodUsage("default", "stranger", 9e12, 9e12, AT_S),
        PodUsage("other", "a0", 9e12, 9e12, AT_S),
        PodUsage("default", "old", 9e12, 9e12, AT_S - 121),
        *(PodUsage("default", name, 9e12, 9e12, AT_S) for name in ("new", "ends", "done")),
    ]
    pods += [
        *(pod("a", "old"), pod("a", "unmeasured"), replace(pod("a", "new"), ready=False)),
        replace(pod("a", "ends"), terminating=True),
        replace(pod("a", "done"), finished=True),
    ]
    assert usage_by_workload(found, pods) == {
        ("default", frozenset({("app", app)})): (
            median(cpu for cpu, _ in each),
            median(memory for _, memory in each),
        )
        for app, each in used.items()
    }


def test_nothing_is_known_of_nothing() -> None:
    assert usage_by_workload([], [pod("a", "a0")]) == {}
