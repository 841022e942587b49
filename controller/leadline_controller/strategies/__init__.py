"""STRATEGIES: the papers' rules for choosing a node. A strategy is one file here and one line
below; a class is imported when it is used. Other packages declare theirs as entry points in the
group `leadline.strategies`, see docs/writing-a-strategy.md."""

from leadline_controller.strategies.registry import StrategyRegistry

# Of a new installation; one that is there keeps what it ran. Releases before 0.3 had the earlier
# default, and noted nowhere which strategy they ran.
DEFAULT_STRATEGY, EARLIER_DEFAULT = "leadline", "dacs"
STRATEGIES = StrategyRegistry(
    __name__,
    {
        "leadline": "leadline:Leadline",
        "netsched": "netsched:NetSched",
        "dacs": "dacs:Dacs",
        "kubedsm": "kubedsm:KubeDsm",
        "infrastructure-aware": "infrastructure_aware:InfrastructureAware",
        "response-time": "response_time:ResponseTime",
        "kube-default": "kube_default:KubeDefault",
        "elasticfog": "elasticfog:ElasticFog",
        "tsra": "tsra:Tsra",
        "nas": "nas:Nas",
        "kcss": "kcss:Kcss",
        "image-locality": "locality:ImageLocality",
        "layer-locality": "locality:LayerLocality",
        "bef": "edge_first:BiggestEdgeFirst",
        "sef": "edge_first:SmallestEdgeFirst",
        "cloud-first": "cloud_first:CloudFirst",
        "random": "chance:Chance",
    },
)
