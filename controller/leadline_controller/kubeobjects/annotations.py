"""Reads a pod's `leadline.dev/` annotations, which anybody who may create pods can write."""

import json
import math
from collections.abc import Mapping

from leadline_controller.framework.model import PodAnnotations
from leadline_controller.parsing.fields import shown

PREFIX = "leadline.dev/"
_NUMBERS = {
    "data-mb": "data_mb",
    "bandwidth-mbps": "bandwidth_mbps",
    "deadline-s": "deadline_s",
    "response-time-ms": "response_time_ms",
    "qos-edge-ratio": "qos_edge_ratio",
}
_MAX_PROFILE = 4096
_MAX_NUMBER = 1e12  # so that no sum or product of hints leaves the finite numbers


class AnnotationError(ValueError):
    """An annotation that can't be read; str() names it and says what was expected."""


def read_annotations(annotations: Mapping[str, str]) -> PodAnnotations:
    """The hints that the annotations give; unknown keys are left alone. Raises AnnotationError."""
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
    hints = PodAnnotations(**found)  # type: ignore[arg-type]  # each value was made for its field above
    if hints.qos_edge_ratio is not None and hints.qos_edge_ratio > 1:
        raise AnnotationError(
            f"annotation {PREFIX}qos-edge-ratio: expected a share between 0 and 1"
        )
    return hints


def _number(key: str, text: object) -> float:
    try:
        value = math.nan if isinstance(text, bool) else float(str(text))
    except ValueError:
        value = math.nan
    if not 0 <= value <= _MAX_NUMBER:
        raise AnnotationError(
            f"annotation {key}: expected a number from 0 to {_MAX_NUMBER:g}, got {shown(text)}"
        )
    return value


def _profile(key: str, text: str) -> dict[str, float]:
    try:
        profile = json.loads(text)
    except (ValueError, RecursionError):  # no JSON, a number too long to read, nested too deep
        profile = None
    if not isinstance(profile, dict) or len(profile) > _MAX_PROFILE:
        raise AnnotationError(
            f"annotation {key}: expected a JSON object of node or class to milliseconds, "
            f"got {shown(text)}"
        )
    return {node: _number(f"{key}: {node[:60]!r}", value) for node, value in profile.items()}
