from leadline_controller.cluster.run import Run
from leadline_controller.framework.model import CPU
from leadline_controller.framework.node_table import NodeTable

from tests.controller.builders import node


def counted(*names: str) -> Run:
    run = Run()
    run.recount(NodeTable([node(name) for name in names]))
    return run


def test_a_run_is_over_a_second_after_its_last_decision() -> None:
    run = Run()
    assert run.is_over(0.0)
    run.seen_s = 10.0
    assert not run.is_over(11.0)
    assert run.is_over(11.1)


def test_pods_and_charges_count_on_their_node_until_they_leave_or_a_run_begins() -> None:
    run = counted("n1", "n2")
    run.join("a", "n2", {CPU: 500})
    run.join("b", "n2", {CPU: -200})
    run.join("b", "n2", {CPU: -100})
    assert run.placed.tolist() == [0, 2]
    assert run.charged[CPU].tolist() == [0, 400]
    run.leave("a")
    run.leave("unknown")
    assert (run.placed.tolist(), run.charged[CPU].tolist()) == ([0, 1], [0, -100])
    run.begin()
    assert (run.placed.tolist(), run.charged, run.pods()) == ([0, 0], {}, [])


def test_a_pod_that_another_scheduler_placed_is_charged_nothing_there() -> None:
    run = counted("n1", "n2")
    run.join("a", "n1", {CPU: 500})
    run.seen_on("a", "n1")
    assert run.charged[CPU].tolist() == [500, 0]
    run.seen_on("a", "n2")
    run.seen_on("stranger", "n2")
    assert (run.placed.tolist(), run.charged[CPU].tolist()) == ([0, 1], [0, 0])


def test_all_pods_are_counted_again_on_another_table() -> None:
    run = counted("n1", "n2")
    run.join("a", "n2", {CPU: 500})
    run.join("b", "gone", {CPU: 1})
    run.recount(NodeTable([node(name) for name in ("n0", "n1", "n2")]))
    assert (run.placed.tolist(), run.charged[CPU].tolist()) == ([0, 0, 1], [0, 0, 500])
