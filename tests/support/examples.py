"""How many examples Hypothesis tries."""

from hypothesis import HealthCheck, settings


def examples(count: int) -> settings:
    """Four times `count` of them in `make test-all`, and a tenth of those in `make test`."""
    scaled = max(1, settings().max_examples * count // 100)
    return settings(max_examples=scaled, suppress_health_check=[HealthCheck.too_slow])
