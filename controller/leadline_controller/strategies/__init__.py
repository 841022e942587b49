"""STRATEGIES: the papers' rules for choosing a node. One file and one line each."""

from collections.abc import Mapping

from leadline_controller.framework.cycle import Strategy
from leadline_controller.strategies.chance import Chance
from leadline_controller.strategies.cloud_first import CloudFirst
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.strategies.edge_first import BiggestEdgeFirst, SmallestEdgeFirst
from leadline_controller.strategies.elasticfog import ElasticFog
from leadline_controller.strategies.infrastructure_aware import InfrastructureAware
from leadline_controller.strategies.kcss import Kcss
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.kubedsm import KubeDsm
from leadline_controller.strategies.locality import ImageLocality, LayerLocality
from leadline_controller.strategies.nas import Nas
from leadline_controller.strategies.netsched import NetSched
from leadline_controller.strategies.response_time import ResponseTime
from leadline_controller.strategies.tsra import Tsra

DEFAULT_STRATEGY = "dacs"
STRATEGIES: Mapping[str, type[Strategy]] = {
    "netsched": NetSched,
    "dacs": Dacs,
    "kubedsm": KubeDsm,
    "infrastructure-aware": InfrastructureAware,
    "response-time": ResponseTime,
    "kube-default": KubeDefault,
    "elasticfog": ElasticFog,
    "tsra": Tsra,
    "nas": Nas,
    "kcss": Kcss,
    "image-locality": ImageLocality,
    "layer-locality": LayerLocality,
    "bef": BiggestEdgeFirst,
    "sef": SmallestEdgeFirst,
    "cloud-first": CloudFirst,
    "random": Chance,
}
