"""The claims of the Infrastructure Aware paper beside the results, with the reasons of misses."""

from collections.abc import Mapping, Sequence

from leadline_controller.framework.view import Floats

from leadline_experiments.result import (
    Claim,
    Kind,
    count_claim,
    gain_claim,
    gain_percent,
    order_claim,
)

Table = Mapping[str, Mapping[str, float]]
# Metric -> its value in each draw, shape (draws,).
Draws = Mapping[str, Floats]

_TABLE, _TEXT = "Table II", "Section IV-D"
METHODS = ("kube-default", "image-locality", "layer-locality", "infrastructure-aware")
_KUBE, _IMAGE, _LAYER, _INFRA = METHODS
# Table II's columns.
METRICS = (
    *("provision_avg_s", "provision_99_s", "provision_max_s", "cache_hits", "cache_misses"),
    *("storage_min_mb", "storage_avg_mb", "storage_max_mb"),
    *("replicas_std_dev", "replicas_min", "replicas_max", "used_nodes"),
)
# As printed. 6248 misses must be about 6298: the other rows add up to 10,211, and only so 38.31 %
# are hits, as the text says.
PAPER: Table = {
    name: dict(zip(METRICS, values, strict=True))
    for name, values in {
        _KUBE: (28.03, 207.27, 279.31, 2042, 8169, 9.94, 749.31, 1423.77, 2.57, 2, 12, 168),
        _IMAGE: (26.56, 221.84, 279.31, 2618, 7593, 9.94, 701.40, 1266.60, 2.60, 2, 12, 168),
        _LAYER: (22.20, 192.11, 279.31, 3808, 6403, 9.94, 595.35, 1314.16, 3.09, 2, 16, 168),
        _INFRA: (13.47, 90.69, 136.04, 3913, 6248, 0.00, 584.31, 1490.30, 5.46, 0, 16, 150),
    }.items()
}


# The reading of the paper was found by a search for the one that comes nearest to Table II, so
# every claim on a value of Table II is fitted.
_FITTED: Kind = "fitted"

_WHY_DRAWS = (
    "The draws decide: with seed 0 it holds, and the last table counts the single draws in which "
    "it does."
)
_WHY_HITS = (
    "The stand-ins' small layers are shared more often than the paper's. Counted by bytes there is "
    "no difference for kube: 30 % of what its replicas need is there, here with seed 0 and by "
    "Table II (1250 replicas of 143.19 MB, less what is stored)."
)
_WHY_99 = (
    "The localities' and kube's last hundredth are so near to each other that the draw decides; "
    "single draws have the paper's order, too (the last table counts them)."
)
_WHY_WEIGHT = (
    "The share of the bytes moves fewer replicas than in the paper. With w = 30 instead of 20 for "
    "Layer Locality (see the ablations) it holds; 20 is what the search found for all three."
)
_WHY_TEXT = (
    "The text's 25 % is not Table II's: 28.03 s and 22.20 s are 20.8 % apart, and kube's 28.03 s "
    "are 26 % above 22.20 s. Even with w = 30 (see the ablations) it misses."
)
_WHY_STORED = (
    "It hangs on the bandwidth that a busy node seems to have. With three pulls at once, where one "
    "more gets a quarter of the link instead of half of it (see the ablations), Infrastructure "
    "Aware avoids such nodes more, stores nearly as much as Layer Locality, and it holds."
)
_WHY_PULLED = (
    "The paper contradicts itself: a node keeps all that it pulls, and Table II has less stored "
    "(584.31 MB) than with Layer Locality (595.35 MB)."
)


def claims(draws: Mapping[str, Draws]) -> list[Claim]:
    """All claims on the means of these draws. draws: of each method."""
    table = {
        method: {metric: float(values.mean()) for metric, values in of_metric.items()}
        for method, of_metric in draws.items()
    }
    return [*_orders(table), *_gains(table), *_counts(table, draws)]


def _orders(table: Table) -> list[Claim]:
    def claim(metric: str, says: str, order: Sequence[str], why: str = _WHY_DRAWS) -> Claim:
        ours = {name: table[name][metric] for name in order}
        paper = {name: PAPER[name][metric] for name in order}
        return order_claim(_TABLE, metric, says, ours, why, _FITTED, paper)

    def late(name: str) -> Claim:
        halves = {
            half: gain_percent(table[name][half], table[_KUBE][half])
            for half in ("first_half_avg_s", "second_half_avg_s")
        }
        says = "The gain against kube comes late, when the caches are full."
        return order_claim(_TEXT, name, says, halves, _WHY_DRAWS)

    speed = METHODS[::-1]
    spread = {name: table[name]["storage_10_90_mb"] for name in METHODS}
    next_most = max(METHODS[:3], key=spread.__getitem__)
    new = {name: table[name]["new_image_avg_s"] for name in (_INFRA, _LAYER)}
    return [
        claim("provision_avg_s", "The more a method knows, the sooner.", speed),
        claim("provision_99_s", "Almost so at 99 %.", (_INFRA, _LAYER, _KUBE, _IMAGE), _WHY_99),
        claim("provision_max_s", "The longest is shortest.", (_INFRA, _LAYER)),
        claim("storage_avg_mb", "The more it knows, the less is stored.", speed),
        claim("cache_hits", "The more it knows, the more is cached.", METHODS),
        claim("replicas_std_dev", "The more it knows, the less even.", METHODS),
        claim("used_nodes", "Infrastructure Aware leaves nodes out.", (_INFRA, _KUBE)),
        order_claim(
            *(_TEXT, "storage, 10 % to 90 %"),
            "Infrastructure Aware's percentiles differ most.",
            {next_most: spread[next_most], _INFRA: spread[_INFRA]},
            _WHY_DRAWS,
        ),
        order_claim(
            *(_TEXT, "image on no node of the region"),
            "Infrastructure Aware is sooner then.",
            new,
            _WHY_DRAWS,
        ),
        late(_IMAGE),
        late(_LAYER),
    ]


def _gains(table: Table) -> list[Claim]:
    def claim(
        where: str,
        metric: str,
        pair: tuple[str, str],
        says: str,
        paper: float,
        why: str = _WHY_DRAWS,
    ) -> Claim:
        ours = gain_percent(table[pair[0]][metric], table[pair[1]][metric])
        return gain_claim(where, metric, says, paper, ours, why, _FITTED)

    average, last, stored = "provision_avg_s", "provision_99_s", "storage_avg_mb"
    image, layer, infra = (_IMAGE, _KUBE), (_LAYER, _KUBE), (_INFRA, _KUBE)
    to_layer = (_INFRA, _LAYER)

    def pulled_more(name: str) -> float:
        return (table[name][stored] / table[_LAYER][stored] - 1) * 100

    had, pulled = "cache_hits", "cache_misses"
    hits = {n: table[n][had] / (table[n][had] + table[n][pulled]) * 100 for n in METHODS}
    return [
        claim(_TEXT, average, image, "Image Locality against kube.", 6.0),
        claim(
            *(_TABLE, average, layer, "Layer Locality against kube, by Table II.", 20.8),
            _WHY_WEIGHT,
        ),
        claim(*(_TEXT, average, layer, "Layer Locality against kube, as said.", 25.0), _WHY_TEXT),
        claim(_TEXT, average, infra, "Infrastructure Aware against kube.", 52.0),
        claim(_TEXT, average, to_layer, "Against Layer Locality.", 37.0),
        claim("Abstract", average, to_layer, "Against Layer Locality.", 40.0),
        claim(_TABLE, last, infra, "Against kube, 99 %.", 56.2),
        claim(_TABLE, last, to_layer, "Against Layer Locality, 99 %.", 52.8),
        gain_claim(
            *(_TEXT, "pulled", "kube pulls more than Layer Locality.", 25.0, pulled_more(_KUBE)),
            *(_WHY_WEIGHT, _FITTED),
        ),
        gain_claim(
            *(_TEXT, "pulled", "Infrastructure Aware pulls more, too.", 0.8, pulled_more(_INFRA)),
            _WHY_PULLED,
        ),
        claim(*(_TABLE, stored, to_layer, "Less stored than Layer Locality.", 1.9), _WHY_STORED),
        *(
            gain_claim(
                *(_TEXT, "cache_hits", f"Hits of all layers, {name}.", paper, hits[name]),
                *(_WHY_HITS, _FITTED),
            )
            for name, paper in ((_KUBE, 20.0), (_LAYER, 37.29), (_INFRA, 38.31))
        ),
    ]


def _counts(table: Table, draws: Mapping[str, Draws]) -> list[Claim]:
    def claim(metric: str, says: str, more: str = "") -> Claim:
        paper, ours = ([round(each[name][metric]) for name in METHODS] for each in (PAPER, table))
        ranges = (draws[name][metric] for name in METHODS)
        texts = (f"{values.min():g}-{values.max():g}" for values in ranges)
        why = (
            "The paper has one draw, and here it is the mean of several. Single draws have "
            f"{', '.join(texts)}.{more}"
        )
        return count_claim(_TABLE, metric, says, paper, ours, why, _FITTED)

    full = (
        " That some leave out the paper's hangs on the pods that fill a node for LeastRequested: "
        "with 24 instead of 60, single draws have the paper's for each method."
    )
    return [
        claim("used_nodes", "Nodes with a replica."),
        claim("replicas_min", "The fewest replicas on a node.", full),
        claim("replicas_max", "The most replicas on a node.", full),
    ]
