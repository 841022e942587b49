"""Reads a pod's `leadline.dev/` annotations, which anybody who may create pods can write."""

import json
import math
from collections.abc import Mapping

from leadline_controller.core.model import Hints

PREFIX = "leadline.dev/"
_NUMBERS = {
    "data-mb": "data_mb",
    "bandwidth-mbps": "bandwidth_mbps",
    "deadline-s": "deadline_s",
    "response-time-ms": "response_time_ms",
    "qos-edge-ratio": "qos_edge_ratio",
}
_MAX_PROFILE = 4096


class HintError(ValueError):
    """An annotation that can't be read; str() names it and says what was expected."""


def read_hints(annotations: Mapping[str, str]) -> Hints:
    """The hints that the annotations give; unknown keys are left alone. Raises HintError."""
    found: dict[str, object] = {}
    for key, text in annotations.items():
        name = key.removeprefix(PREFIX)
        if name == key:
            continue
        if name == "user-node":
            found["user_node"] = text
        elif name == "profile-ms":
            found["profile_ms"] = _profile(key, text)
        elif name in _NUMBERS:
            found[_NUMBERS[name]] = _number(key, text)
    hints = Hints(**found)  # type: ignore[arg-type]  # each value was made for its field above
    if hints.qos_edge_ratio is not None and hints.qos_edge_ratio > 1:
        raise HintError(f"annotation {PREFIX}qos-edge-ratio: expected a share between 0 and 1")
    return hints


def _number(key: str, text: object) -> float:
    try:
        value = float(str(text))
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise HintError(f"annotation {key}: expected a number of 0 or more, got {str(text)[:60]!r}")
    return value


def _profile(key: str, text: str) -> dict[str, float]:
    try:
        profile = json.loads(text)
    except (json.JSONDecodeError, TypeError, RecursionError):
        profile = None
    if not isinstance(profile, dict) or len(profile) > _MAX_PROFILE:
        raise HintError(
            f"annotation {key}: expected a JSON object of node or class to milliseconds, "
            f"got {str(text)[:60]!r}"
        )
    return {node: _number(key, value) for node, value in profile.items()}
