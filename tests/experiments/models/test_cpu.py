"""Sharing a node's cores, with times worked by hand."""

from math import inf, nan

import pytest
import simpy
from leadline_experiments.models.cpu import Contention, CpuModel, fair_shares


def finish_s(
    cores: float, tasks: list[tuple[float, float, float]], contention: Contention | None = None
) -> list[float]:
    """When each task (start s, work core-s, limit cores) is done."""
    env = simpy.Environment()
    node = CpuModel(env, cores, contention)
    done = [nan] * len(tasks)

    def user(
        at: int, start_s: float, work_core_s: float, limit_cores: float
    ) -> simpy.events.ProcessGenerator:
        yield env.timeout(start_s)
        yield node.run(work_core_s, limit_cores)
        done[at] = env.now

    for at, task in enumerate(tasks):
        env.process(user(at, *task))
    env.run()
    assert node.running == 0
    return done


@pytest.mark.parametrize(
    ("limits", "capacity", "expected"),
    [
        ([], 2.0, []),
        ([inf], 2.0, [2.0]),
        ([1.0], 2.0, [1.0]),  # what it can't use stays unused
        ([1.0, 1.0, 1.0], 2.0, [2 / 3, 2 / 3, 2 / 3]),
        ([inf, 0.25, inf], 2.0, [0.875, 0.25, 0.875]),  # 2 - 0.25 for two
        ([3.0, 0.5, 1.0], 4.0, [2.5, 0.5, 1.0]),
    ],
)
def test_shares_are_max_min_fair(
    limits: list[float], capacity: float, expected: list[float]
) -> None:
    assert fair_shares(limits, capacity) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("cores", "tasks", "expected"),
    [
        (1, [(0, 4, inf)], [4]),
        (2, [(0, 4, inf)], [2]),
        (2, [(0, 4, 1)], [4]),  # a single thread
        (0.5, [(0, 4, 1)], [8]),  # half as fast a node
        (1, [(0, 4, 1), (0, 4, 1)], [8, 8]),
        (2, [(0, 4, 1)] * 3, [6, 6, 6]),  # 12 core-s on 2 cores
        # Both at half speed until the short one is done at 4; the long one has 4 left.
        (1, [(0, 2, 1), (0, 6, 1)], [4, 8]),
        # Alone until 1, then half each: the first has 3 left, done at 7; the second has
        # done 3 of 5 by then and is alone again.
        (1, [(0, 4, 1), (1, 5, 1)], [7, 9]),
        # The limited one takes 0.5, the other 1.5 of 2 cores.
        (2, [(0, 2, 0.5), (0, 6, inf)], [4, 4]),
        (1, [(3, 2, 1)], [5]),  # an idle node owes nothing
        (1, [(2, 0, 1), (0, 4, 1)], [2, 4]),  # no work takes no time
    ],
)
def test_when_tasks_are_done(
    cores: float, tasks: list[tuple[float, float, float]], expected: list[float]
) -> None:
    assert finish_s(cores, tasks) == pytest.approx(expected)


def test_tasks_that_are_equal_are_done_at_the_same_moment() -> None:
    # A third of a core each: no binary fraction, and yet one moment.
    assert len(set(finish_s(1, [(0, 0.1, 1)] * 3))) == 1


def test_eq_18_each_slice_takes_gamma_longer() -> None:
    contention = Contention(beta_cs=0.1, beta_rc=0.2, slice_s=1.0)
    # Beside 0, 1, 2, 3 others Gamma is 0, 0.1 + 0.2, 0.1 + 0.4, 0.1 + 0.8 s a second of work.
    assert [1 / contention.efficiency(n) for n in (1, 2, 3, 4)] == pytest.approx([1, 1.3, 1.5, 1.9])
    assert contention.efficiency(10**6) > 0


def test_contention_lasts_as_long_as_the_sharing() -> None:
    contention = Contention(beta_cs=0.0, beta_rc=0.25, slice_s=1.0)
    assert finish_s(2, [(0, 4, 1)], contention) == [4]
    # Beside one other every second of work takes 1.25 s: the short one is done at 5, the
    # long one has 4 left and is alone.
    assert finish_s(2, [(0, 4, 1), (0, 8, 1)], contention) == pytest.approx([5, 9])


def test_a_far_clock_does_not_stall() -> None:
    assert finish_s(1, [(1e9, 1e-9, 1), (1e9, 3.0, 1)])[1] == pytest.approx(1e9 + 3)
