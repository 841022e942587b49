"""Lets the rule score and decide about a pod of these annotations."""

import json
from random import Random

import numpy as np
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Decision, Rule, Scores, decide
from leadline_controller.framework.model import Pod
from leadline_controller.framework.options import build
from leadline_controller.framework.view import ClusterView
from leadline_controller.strategies.leadline import Leadline

from tests.controller.builders import pod


def wanted(**annotations: object) -> Pod:
    texts = {
        key.replace("_", "-"): value if isinstance(value, str) else json.dumps(value)
        for key, value in annotations.items()
    }
    return pod("p", annotations=texts)


def scores(cluster: ClusterView, wanted: Pod, **options: float | str) -> Scores:
    made: Leadline = build(Leadline, options)
    return made.score(cluster, wanted, np.arange(len(cluster)))


def decision(cluster: ClusterView, wanted: Pod) -> Decision:
    return decide(cluster, wanted, Rule(Leadline(), FILTERS, Random(0)))
