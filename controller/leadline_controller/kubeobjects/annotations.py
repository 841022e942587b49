"""Reads a pod's `leadline.dev/` annotations; anybody who may create pods can write them."""

import json
import math
from collections.abc import Mapping
from typing import Any

from leadline_controller.framework.model import PodAnnotations
from leadline_controller.parsing.fields import shown

PREFIX = "leadline.dev/"
_NUMBERS = ("data-mb", "bandwidth-mbps", "deadline-s", "response-time-ms", "qos-edge-ratio")
_MAX_PROFILE_ENTRIES = 4096
_MAX_NUMBER = 1e12  # sums and products of such numbers stay finite


class AnnotationError(ValueError):
    """An annotation that can't be read; str() names it and says what was expected."""


def read_annotations(annotations: Mapping[str, str]) -> PodAnnotations:
    """The values of known annotations; others are ignored. Raises AnnotationError."""
    found: dict[str, Any] = {}
    for key, text in annotations.items():
        name = key.removeprefix(PREFIX)
        if name == key:
            continue
        field = name.replace("-", "_")
        if name in _NUMBERS:
            found[field] = _number(key, text)
        elif name == "profile-ms":
            found[field] = _profile(key, text)
        elif name == "user-node":
            found[field] = text
    read = PodAnnotations(**found)
    if read.qos_edge_ratio is not None and read.qos_edge_ratio > 1:
        raise AnnotationError(
            f"annotation {PREFIX}qos-edge-ratio: expected a share between 0 and 1"
        )
    return read


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
    except (ValueError, RecursionError):  # not JSON, a number with too many digits, nested too deep
        profile = None
    if not isinstance(profile, dict) or len(profile) > _MAX_PROFILE_ENTRIES:
        raise AnnotationError(
            f"annotation {key}: expected a JSON object of node or class to milliseconds, "
            f"got {shown(text)}"
        )
    return {node: _number(f"{key}: {node[:60]!r}", value) for node, value in profile.items()}
