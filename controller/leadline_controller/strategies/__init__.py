"""STRATEGIES: the papers' rules for choosing a node. One file and one line each."""

from collections.abc import Mapping

from leadline_controller.core.cycle import Strategy
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.netsched import NetSched
from leadline_controller.strategies.response_time import ResponseTime

DEFAULT_STRATEGY = "dacs"
STRATEGIES: Mapping[str, type[Strategy]] = {
    "netsched": NetSched,
    "dacs": Dacs,
    "response-time": ResponseTime,
    "kube-default": KubeDefault,
}
