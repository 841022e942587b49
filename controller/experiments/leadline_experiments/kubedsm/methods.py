"""The methods that the KubeDSM paper compares, its variants of KubeDSM and its QoS settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from leadline_controller.framework.cycle import Better, Scores, best
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.strategies.cloud_first import CloudFirst
from leadline_controller.strategies.edge_first import BiggestEdgeFirst, SmallestEdgeFirst
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.kubedsm import KubeDsm
from leadline_controller.strategies.shared.capacity import is_cloud

from leadline_experiments.kubedsm.scenario_run import Method

SUGGESTIONS = 5  # between the six intervals of a cycle of 90 s
K8S, KUBEDSM = "kube-default", "kubedsm"
_PREFERENCE = 100.0  # more than any score of kube-default, which is 10 at most


@dataclass(frozen=True, slots=True)
class EdgePreferred:
    """kube-scheduler with the configuration of Section 6.2: a PreferNoSchedule taint on the cloud
    and a preferred affinity to the edge, so that any edge node that fits is preferred. Within a
    tier kube-default decides. Unknown where kube-default is."""

    name: ClassVar[str] = K8S
    better: ClassVar[Better] = "higher"
    paper: ClassVar[str] = "KubeDSM, Section 6.2 (K8S)"
    needs: ClassVar[tuple[str, ...]] = ()

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """kube-default's score plus the preference for the edge."""
        scores = KubeDefault().score(view, pod, candidates)
        total = scores.total + np.where(is_cloud(view)[candidates], 0.0, _PREFERENCE)
        return Scores(candidates, total, best(total, self.better), scores.why, scores.parts)

    def charge(self, _: ClusterView, pod: Pod, __: int) -> Mapping[str, int]:
        """The pod's requests."""
        return pod.requests


def kubedsm(m_c2e: int = 5, m_er: int = 3, targets: Mapping[str, float] | None = None) -> Method:
    """KubeDSM with these limits of migrations and QoS targets."""
    return Method(KubeDsm(suggest=0), KubeDsm(m_c2e=m_c2e, m_er=m_er), SUGGESTIONS, targets or {})


METHODS: Mapping[str, Method] = {
    KUBEDSM: kubedsm(),
    K8S: Method(EdgePreferred()),
    "bef": Method(BiggestEdgeFirst()),
    "sef": Method(SmallestEdgeFirst()),
    "cloud-first": Method(CloudFirst()),
}
# Fig. 10: M_C2E and M_ER. The paper's values of MidMig are lost; these lie between the others.
VARIANTS: Mapping[str, tuple[int, int]] = {
    "Original": (5, 3),
    "MidMig": (3, 1),
    "NoCloudOffload": (0, 3),
    "NoMig": (0, 0),
}
# Fig. 11.
SETTINGS: Mapping[str, Mapping[str, float]] = {
    "default": {},
    "AllEqual": dict.fromkeys("ABCD", 0.5),
    "CA": {"A": 0.5, "B": 0.1, "C": 1.0, "D": 0.1},
    "RespectD": {"A": 0.1, "B": 0.1, "C": 0.1, "D": 0.5},
}
