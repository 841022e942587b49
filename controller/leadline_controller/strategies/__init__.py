"""STRATEGIES: the papers' rules for choosing a node. A strategy is one class here and one line
below; it is imported when it is used. Other packages declare theirs as entry points in the
group `leadline.strategies`, see docs/writing-a-strategy.md."""

from leadline_controller.strategies.registry import StrategyRegistry

DEFAULT_STRATEGY = "dacs"
STRATEGIES = StrategyRegistry(
    __name__,
    {
        "netsched": "netsched:NetSched",
        "dacs": "dacs:Dacs",
        "kubedsm": "kubedsm:KubeDsm",
        "infrastructure-aware": "infrastructure_aware:InfrastructureAware",
        "response-time": "response_time:ResponseTime",
        "kube-default": "kube_default:KubeDefault",
        "elasticfog": "dacs_baselines:ElasticFog",
        "tsra": "dacs_baselines:Tsra",
        "nas": "dacs_baselines:Nas",
        "kcss": "dacs_baselines:Kcss",
        "image-locality": "locality:ImageLocality",
        "layer-locality": "locality:LayerLocality",
        "bef": "tiered:BiggestEdgeFirst",
        "sef": "tiered:SmallestEdgeFirst",
        "cloud-first": "tiered:CloudFirst",
        "random": "chance:Chance",
    },
)
