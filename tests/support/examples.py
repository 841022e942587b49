"""How many examples Hypothesis tries."""

from hypothesis import HealthCheck, settings


def examples(count: int) -> settings:
    """`count` of them in `make test`, and four times as many in `make test-all`."""
    scale = settings().max_examples // 100
    return settings(max_examples=scale * count, suppress_health_check=[HealthCheck.too_slow])
