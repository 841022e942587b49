"""Made-up outcomes of a seeded generator: boards of three zones and a cloud, pods in waves."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from leadline_lab.replay.outcomes import Outcome, PodOutcome

DAY_S = 86400.0
ZONES = {
    **{f"cellar-{i}": "cellar" for i in range(6)},
    **{f"hall-{i}": "hall" for i in range(10)},
    "cloud-0": "cloud",
    "cloud-1": "cloud",
}
TIERS = {node: "cloud" if zone == "cloud" else "edge" for node, zone in ZONES.items()}


@dataclass(frozen=True)
class Trait:
    """How a strategy differs from others: factors of times, its taste for boards."""

    name: str
    pull: float = 1.0
    rtt: float = 1.0
    crowding: float = 1.0  # how often the first boards are taken
    is_recorded: bool = False


KUBE_DEFAULT = Trait("kube-default", is_recorded=True)
NETSCHED = Trait("netsched", pull=0.8, rtt=1.02, crowding=1.3)
DACS = Trait("dacs", pull=0.97, rtt=0.7, crowding=1.8)
IMAGE_LOCALITY = Trait("image-locality", pull=0.6, rtt=1.3, crowding=4.0)


def outcome(
    trait: Trait, seed: int = 0, window: str = "", pods: int = 500, length_s: float = DAY_S
) -> Outcome:
    """One run. Arrivals, users and images are the same for all strategies and seeds."""
    given = Random(f"{window} {pods}")
    chance = Random(f"{window} {seed} {trait.name}")
    slow = [given.lognormvariate(0, 0.5) for _ in range(24)]
    created = sorted(given.triangular(0, length_s, length_s * 0.6) for _ in range(pods))
    made = [
        _pod(i, at_s, slow[int(at_s / length_s * 24)], trait, given, chance, length_s)
        for i, at_s in enumerate(created)
    ]
    return Outcome(
        trait.name,
        seed,
        length_s,
        tuple(made),
        ZONES,
        TIERS,
        caveats=("The traffic of pods that never ran is taken from others of their workload.",),
        window=window,
        cluster="factory",
        began_unix_s=1_792_368_000.0,
        is_recorded=trait.is_recorded,
    )


def outcomes(traits: Sequence[Trait], seeds: int = 3, pods: int = 500) -> list[Outcome]:
    return [outcome(trait, seed, "monday.rec", pods) for trait in traits for seed in range(seeds)]


def _pod(
    number: int,
    at_s: float,
    slow: float,
    trait: Trait,
    given: Random,
    chance: Random,
    length_s: float,
) -> PodOutcome:
    image_s, near_ms, life_s = given.expovariate(0.1) * slow, given.uniform(1, 40), 1800.0
    has_user, has_data = given.random() < 0.6, given.random() < 0.3
    names = list(ZONES)
    node = names[min(int(len(names) * chance.random() ** trait.crowding), len(names) - 1)]
    wait_s = chance.expovariate(2)
    pull_s = 0.0 if chance.random() < 0.3 else image_s * trait.pull * chance.uniform(0.8, 1.2)
    start_s = chance.uniform(1, 2)
    bound_s = at_s + wait_s
    ready_s = bound_s + pull_s + start_s
    rtt_ms = near_ms * trait.rtt * chance.uniform(1, 1.5)
    if bound_s > length_s:
        return PodOutcome(f"default/web-{number}", "default/web", at_s)
    return PodOutcome(
        f"default/web-{number}",
        "default/web",
        at_s,
        node,
        bound_s,
        ready_s if ready_s < length_s else None,
        bound_s + life_s if bound_s + life_s < length_s else None,
        pull_s,
        rtt_ms if has_user else None,
        rtt_ms / 10 if has_user and has_data else None,
        max(0.0, chance.gauss(0.02 * trait.crowding, 0.05)),
        best_ready_s=min(ready_s - at_s, 1.0 + image_s * 0.3),
        best_rtt_ms=near_ms * 0.7 if has_user else None,
    )
