"""True round trips of whole networks, seeded, in ms, shape (n, n)."""

from collections.abc import Callable

import numpy as np
from leadline_controller.framework.view import Floats

Network = Callable[[int, np.random.Generator], Floats]


def clustered(count: int, random: np.random.Generator) -> Floats:
    """Edge boards on sites, fog boards between the sites, and a cloud 28 ms away."""
    sites = max(3, count // 12)
    tier = random.choice(3, size=count, p=[0.75, 0.15, 0.10])
    edge, fog, cloud = (tier == each for each in range(3))
    site = random.integers(sites, size=count)
    place = random.uniform(0, 8, size=(sites, 2))[site]
    uplink = random.uniform(1.5, 4, size=sites)[site]
    access = np.select(
        [edge, fog, cloud],
        [
            random.lognormal(-0.7, 0.5, count),
            random.lognormal(-1.2, 0.4, count),
            random.lognormal(-2.0, 0.3, count),
        ],
    )
    rtt_ms = np.zeros((count, count))
    for i in range(count):
        far = np.hypot(*(place - place[i]).T)
        between = np.where(edge, uplink, 0.0) + (uplink[i] if edge[i] else 0.0)
        core = between + far + np.where(fog & fog[i], 0.5, 0.0)
        core = np.where(edge & edge[i] & (site == site[i]), 0.3, core)
        core = np.where(cloud | cloud[i], 28 + between, core)
        rtt_ms[i] = access + access[i] + np.where(cloud & cloud[i], 0.4, core)
    return _symmetric(rtt_ms * random.lognormal(0, 0.05, rtt_ms.shape))


def switched(count: int, random: np.random.Generator) -> Floats:
    """Boards on one switch."""
    return _symmetric(random.uniform(0.2, 0.5, (count, count)))


def star(count: int, random: np.random.Generator) -> Floats:
    """Access links of very different length to one switch."""
    access = random.lognormal(1, 0.8, count)
    return _symmetric(access[:, np.newaxis] + access)


def far(count: int, random: np.random.Generator) -> Floats:
    """Sites of one board each, 30 ms from each other."""
    return _symmetric(random.uniform(26, 34, (count, count)))


def line(count: int, random: np.random.Generator) -> Floats:
    """A row of boards along a road."""
    place = random.uniform(0, 50, count)
    return _symmetric(abs(place[:, np.newaxis] - place) + 0.4)


def grid(count: int, _: np.random.Generator) -> Floats:
    """A mesh, 2 ms a hop."""
    side = int(np.ceil(count**0.5))
    place = np.array([(i // side, i % side) for i in range(count)], dtype=float)
    return _symmetric(2 * abs(place[:, np.newaxis] - place).sum(axis=2) + 0.3)


def unstructured(count: int, random: np.random.Generator) -> Floats:
    """No pair says anything about another one."""
    return _symmetric(random.uniform(1, 50, (count, count)))


def with_violations(count: int, random: np.random.Generator) -> Floats:
    """Clusters, where a tenth of the pairs violates the triangle inequality."""
    share = random.random((count, count))
    factor = np.select([share < 0.05, share > 0.95], [0.35, 3.0], 1.0)
    return _symmetric(clustered(count, random) * factor)


def uneven(count: int, random: np.random.Generator) -> Floats:
    """Clusters, where each pair deviates from what its nodes suggest by 15 %."""
    return _symmetric(clustered(count, random) * random.lognormal(0, 0.15, (count, count)))


def _symmetric(rtt_ms: Floats) -> Floats:
    upper = np.triu(rtt_ms, 1)
    return upper + upper.T
