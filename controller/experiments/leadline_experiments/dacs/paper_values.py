"""The DACS paper's values: the counts of Fig. 3(a) and 4(a) as far as the text has them, Tables 6
and 7, and the gains of Sections 7.3 and 7.4."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

ALPHAS = (0.25, 0.5, 0.75)
BASELINES = ("tsra", "elasticfog", "kube-default", "nas", "kcss")  # as the tables rank them


class PaperCounts(NamedTuple):
    """Pods on n1, n2 and n3; None where the paper does not say. any_node: the counts are those of
    any nodes, most pods first, because chance decides or the paper does not say."""

    pods: Sequence[int | None]
    any_node: bool = False


_EVEN = PaperCounts((4, 3, 3), any_node=True)

# By scenario, method, and its alpha or preferred node.
COUNTS: Mapping[str, Mapping[tuple[str, str], PaperCounts]] = {
    "scenario 1": {
        ("kube-default", ""): PaperCounts((None, None, 5)),
        ("elasticfog", ""): _EVEN,
        ("tsra", ""): _EVEN,
        ("nas", "n1 preferred"): PaperCounts((6, 4, 0)),
        ("nas", "n2 preferred"): PaperCounts((0, 6, 4)),
        ("nas", "n3 preferred"): PaperCounts((0, 4, 6)),
        ("kcss", ""): PaperCounts((4, 6, 0)),
        ("dacs", "alpha=0.25"): PaperCounts((3, 4, 3)),
        ("dacs", "alpha=0.5"): PaperCounts((3, 4, 3)),
        ("dacs", "alpha=0.75"): _EVEN,
    },
    "scenario 2": {
        ("kube-default", ""): PaperCounts((2, 2, 2)),
        ("elasticfog", ""): PaperCounts((2, 2, 2)),
        ("tsra", ""): PaperCounts((4, 1, 1)),
        ("nas", "n1 preferred"): PaperCounts((6, 0, 0)),
        ("nas", "n2 preferred"): PaperCounts((0, 3, 3)),
        ("nas", "n3 preferred"): PaperCounts((0, 3, 3)),
        ("kcss", ""): PaperCounts((0, 3, 3)),
        ("dacs", "alpha=0.25"): PaperCounts((3, 1, 2)),
        ("dacs", "alpha=0.5"): PaperCounts((3, 2, 1)),
        ("dacs", "alpha=0.75"): PaperCounts((3, 2, 1)),
    },
}

# By scenario and method: seconds to complete all tasks at low and at high load.
COMPLETION_S: Mapping[str, Mapping[tuple[str, str], tuple[float, float]]] = {
    "scenario 1": {
        ("kube-default", ""): (13.25, 127.00),
        ("elasticfog", ""): (11.80, 104.03),
        ("tsra", ""): (11.78, 104.01),
        ("nas", ""): (16.62, 198.51),
        ("kcss", ""): (17.04, 204.19),
        ("dacs", "alpha=0.25"): (11.31, 101.52),
        ("dacs", "alpha=0.5"): (11.23, 100.91),
        ("dacs", "alpha=0.75"): (11.02, 99.41),
    },
    "scenario 2": {
        ("kube-default", ""): (16.92, 168.47),
        ("elasticfog", ""): (15.95, 160.13),
        ("tsra", ""): (15.65, 159.09),
        ("nas", ""): (17.49, 277.20),
        ("kcss", ""): (19.59, 284.81),
        ("dacs", "alpha=0.25"): (14.05, 139.95),
        ("dacs", "alpha=0.5"): (14.37, 141.05),
        ("dacs", "alpha=0.75"): (14.39, 143.17),
    },
}

# By scenario: DACS' alphas, the fastest first. The gains are those of the first.
FASTEST: Mapping[str, Sequence[str]] = {
    "scenario 1": ("alpha=0.75", "alpha=0.5", "alpha=0.25"),
    "scenario 2": ("alpha=0.25", "alpha=0.5", "alpha=0.75"),
}

# By scenario and baseline: how much less time DACS takes, percent, at low and at high load.
GAINS: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "scenario 1": {
        "kube-default": (16.8, 21.7),
        "elasticfog": (6.6, 4.4),
        "tsra": (6.5, 4.4),
        "nas": (33.7, 49.4),
        "kcss": (35.3, 51.3),
    },
    "scenario 2": {
        "kube-default": (17.0, 16.9),
        "elasticfog": (11.9, 12.6),
        "tsra": (10.2, 12.0),
        "nas": (19.7, 49.5),
        "kcss": (28.3, 50.9),
    },
}
