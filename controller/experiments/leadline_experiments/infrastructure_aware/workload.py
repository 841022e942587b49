"""A stand-in for the paper's 24 images, and the applications that use them.

The paper takes Docker Hub's 24 most downloaded images without base images, and prints their total
size with and without shared layers. The stand-in has 24 images that led the list about 2021, with
their usual structure: official images share a few bases (Debian slim and full, Ubuntu, Alpine,
buildpack-deps, PHP with Apache) and add their own layers, some of them tiny. The proportions are
rough; two factors, one for shared and one for own layers, give both of the paper's totals exactly.
"""

from dataclasses import dataclass
from math import fsum
from random import Random

from leadline_controller.framework.model import Image, Layer

TOTAL_MB = 3436.45
UNIQUE_MB = 2152.78
APPLICATIONS = 350
REPLICAS = 1250
IMAGES_EACH = (5, 25)
REPLICAS_EACH = (2, 5)
LATEST_S = 1000.0

# Base -> the layers that every image on it shares, MB.
_BASES = {
    "slim": (27.1,),
    "debian": (50.4,),
    "scm": (50.4, 7.8, 10.0, 51.8),
    "buildpack": (50.4, 7.8, 10.0, 51.8, 192.0),
    "ubuntu": (28.6, 0.8),
    "alpine": (2.8,),
    "php": (27.1, 0.2, 76.7, 0.3, 18.6, 0.5, 11.3, 14.2),
}
# Image -> its base, and the layers that only it has, MB.
_IMAGES = {
    "nginx": ("slim", (26.6, 0.6, 0.9, 0.7, 1.4)),
    "redis": ("slim", (1.7, 1.4, 7.5, 0.1, 0.1)),
    "postgres": ("slim", (4.4, 1.8, 1.4, 8.0, 0.4, 72.0, 0.1, 0.1)),
    "httpd": ("slim", (0.2, 10.4, 24.5, 0.3)),
    "mysql": ("slim", (1.7, 4.2, 1.4, 0.1, 13.4, 0.1, 112.0, 0.8, 0.1)),
    "memcached": ("slim", (0.3, 1.2, 3.1, 0.3)),
    "haproxy": ("slim", (0.2, 10.6, 0.2)),
    "mongo": ("ubuntu", (2.9, 4.3, 1.5, 0.2, 119.0, 0.1)),
    "mariadb": ("ubuntu", (4.3, 4.9, 0.1, 0.3, 86.0, 0.1)),
    "rabbitmq": ("ubuntu", (30.0, 0.6, 17.0, 0.1, 0.2)),
    "node": ("buildpack", (4.2, 33.3, 2.3, 0.3)),
    "python": ("buildpack", (6.3, 18.7, 0.2, 2.4)),
    "ruby": ("buildpack", (0.2, 23.2, 0.1)),
    "golang": ("scm", (68.7, 129.0, 0.2)),
    "openjdk": ("scm", (5.4, 0.2, 203.0)),
    "tomcat": ("scm", (5.4, 0.3, 104.0, 0.2, 12.8, 0.1)),
    "influxdb": ("debian", (6.2, 58.0, 0.3, 0.2)),
    "php": ("php", (2.3, 0.3, 0.2)),
    "wordpress": ("php", (13.3, 0.5, 26.0, 1.9, 15.2, 0.2)),
    "nextcloud": ("php", (16.8, 9.0, 0.3, 105.0, 0.2)),
    "traefik": ("alpine", (1.2, 28.0, 0.1)),
    "registry": ("alpine", (0.3, 6.3, 0.2, 0.1)),
    "docker": ("alpine", (2.0, 0.1, 58.0, 0.3, 6.0, 0.1)),
    "elasticsearch": ("", (75.0, 14.0, 310.0, 0.2, 0.3, 0.1)),
}


@dataclass(frozen=True, slots=True)
class Application:
    """Replicas of one image, all scheduled at `start_s`."""

    name: str
    image: Image
    replicas: int
    start_s: float


def stand_in_images() -> tuple[Image, ...]:
    """The 24 images, with their sizes scaled to the paper's totals."""
    shared, own = _scale_factors()
    return tuple(
        Image(
            f"{name}:1",
            (
                *(Layer(f"sha256:{d}", mb * shared) for d, mb in _base_layers(base).items()),
                *(Layer(f"sha256:{name}-{i}", mb * own) for i, mb in enumerate(sizes)),
            ),
        )
        for name, (base, sizes) in _IMAGES.items()
    )


def draw_applications(images: tuple[Image, ...], random: Random) -> tuple[Application, ...]:
    """Section IV-C: 5 to 25 applications per image and 2 to 5 replicas per application, drawn
    uniformly and then adjusted one by one within these ranges to Table I's sums; uniform start
    times. In order of time."""
    counts = _draw_with_sum(random, len(images), IMAGES_EACH, APPLICATIONS)
    replicas = _draw_with_sum(random, APPLICATIONS, REPLICAS_EACH, REPLICAS)
    image_of_app = [
        image for image, count in zip(images, counts, strict=True) for _ in range(count)
    ]
    drawn = [
        Application(f"app-{i}", image, number, random.uniform(0.0, LATEST_S))
        for i, (image, number) in enumerate(zip(image_of_app, replicas, strict=True))
    ]
    return tuple(sorted(drawn, key=lambda application: application.start_s))


def _base_layers(base: str) -> dict[str, float]:
    """Digest -> MB. Bases with equal first layers share these."""
    sizes = _BASES.get(base, ())
    return {"/".join(f"{mb:g}" for mb in sizes[: i + 1]): sizes[i] for i in range(len(sizes))}


def _scale_factors() -> tuple[float, float]:
    """The factors of shared and own layers that give both of the paper's totals."""
    own = fsum(fsum(sizes) for _, sizes in _IMAGES.values())
    shared = fsum(fsum(_base_layers(base).values()) for base, _ in _IMAGES.values())
    once = {d: mb for base, _ in _IMAGES.values() for d, mb in _base_layers(base).items()}
    factor = (TOTAL_MB - UNIQUE_MB) / (shared - fsum(once.values()))
    return factor, (TOTAL_MB - factor * shared) / own


def _draw_with_sum(random: Random, count: int, between: tuple[int, int], total: int) -> list[int]:
    drawn = [random.randint(*between) for _ in range(count)]
    while sum(drawn) != total:
        at, step = random.randrange(count), 1 if sum(drawn) < total else -1
        if between[0] <= drawn[at] + step <= between[1]:
            drawn[at] += step
    return drawn
