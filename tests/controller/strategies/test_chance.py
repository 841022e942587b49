"""random: every candidate is equally likely."""

from collections import Counter
from random import Random

from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule, decide
from leadline_controller.framework.model import CPU
from leadline_controller.strategies.chance import Chance

from tests.controller.builders import node, pod, view


def test_each_candidate_is_chosen_about_equally_often() -> None:
    cluster = view([node("a"), node("b"), node("full")], requested={CPU: [3000, 0, 4000]})
    wanted = pod(requests={"cpu": "1"})
    random = Random(0)
    found = Counter(
        decide(cluster, wanted, Rule(Chance(), FILTERS, random)).node for _ in range(600)
    )
    # 300 each; five standard deviations are 61.
    assert set(found) == {"a", "b"}
    assert abs(found["a"] - 300) < 61
