"""STRATEGIES: the papers' rules for choosing a node. One file and one line each."""

from collections.abc import Mapping

from leadline_controller.core.cycle import Strategy
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.strategies.image_locality import ImageLocality
from leadline_controller.strategies.infrastructure_aware import InfrastructureAware
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.layer_locality import LayerLocality
from leadline_controller.strategies.netsched import NetSched

DEFAULT_STRATEGY = "dacs"
STRATEGIES: Mapping[str, type[Strategy]] = {
    "netsched": NetSched,
    "dacs": Dacs,
    "infrastructure-aware": InfrastructureAware,
    "kube-default": KubeDefault,
    "image-locality": ImageLocality,
    "layer-locality": LayerLocality,
}
