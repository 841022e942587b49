"""Reads the `leadline.dev/` annotations of pods, and finds those and labels that mean nothing;
anybody who may create pods can write them. docs/annotations.md lists all."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import chain, islice
from typing import Any

from leadline_controller.framework.model import PodAnnotations
from leadline_controller.kubeobjects.peers import read_peers
from leadline_controller.parsing.fields import FieldError, quoted, shown

PREFIX = "leadline.dev/"
DELETION_ORDER = f"{PREFIX}deletion-order"
_NUMBERS = ("data-mb", "bandwidth-mbps", "deadline-s", "response-time-ms", "qos-edge-ratio")
# What Leadline reads or writes. The contract tests hold docs/annotations.md to it.
POD_ANNOTATIONS = (
    *(*_NUMBERS, "profile-ms", "user-node", "peers"),
    *("keep", "predicted-ms", "deletion-order"),
)
NODE_LABELS = ("tier", "bandwidth-mbps", "class", "preferred-node", "lab")
_MAX_SHOWN = 80
_MAX_WARNINGS = 4
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
        elif name == "peers":
            try:
                found[field] = read_peers(text)
            except FieldError as error:
                raise AnnotationError(f"annotation {key}: {error}") from None
        elif key == DELETION_ORDER:
            found[field] = read_flag(f"annotation {key}", text)
    read = PodAnnotations(**found)
    if read.qos_edge_ratio is not None and read.qos_edge_ratio > 1:
        raise AnnotationError(
            f"annotation {PREFIX}qos-edge-ratio: expected a share between 0 and 1"
        )
    return read


def pod_warnings(annotations: Mapping[str, str], labels: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for each of a pod's first unknown `leadline.dev/` annotations and labels."""
    found = _unknown("annotation", annotations, POD_ANNOTATIONS, ())
    return tuple(
        islice(chain(found, _unknown("label", labels, (), POD_ANNOTATIONS)), _MAX_WARNINGS)
    )


def node_warnings(annotations: Mapping[str, str], labels: Mapping[str, str]) -> tuple[str, ...]:
    """The same for a node, and for labels whose values can't be read."""
    found = _unknown("label", labels, NODE_LABELS, ())
    others = _unknown("annotation", annotations, (), NODE_LABELS)
    return tuple(islice(chain(found, _unreadable(labels), others), _MAX_WARNINGS))


def _unknown(
    kind: str, given: Mapping[str, str], known: Sequence[str], elsewhere: Sequence[str]
) -> Iterator[str]:
    """known: the names of this kind. elsewhere: those that are of the other kind."""
    for key in given:
        if not key.startswith(PREFIX) or (name := key.removeprefix(PREFIX)) in known:
            continue
        given_key = key if len(key) <= _MAX_SHOWN else f"{key[:_MAX_SHOWN]}..."
        if name in elsewhere:
            other = "label" if kind == "annotation" else "annotation"
            yield f"{kind} {given_key} means nothing: it is read as {other}"
            continue
        near = get_close_matches(name[:_MAX_SHOWN], [*known, *elsewhere], 1)
        hint = f"did you mean {PREFIX}{near[0]}?" if near else "Leadline does not know it"
        yield f"{kind} {given_key} means nothing: {hint}"


def _unreadable(labels: Mapping[str, str]) -> Iterator[str]:
    for name, value in labels.items():
        match name.removeprefix(PREFIX) if name.startswith(PREFIX) else "":
            case "tier" if value not in ("edge", "cloud"):
                what = "edge or cloud"
            case "bandwidth-mbps" if not is_amount(value):
                what = "a number of Mbit/s"
            case "preferred-node" if value not in ("true", "false"):
                what = "true or false"
            case _:
                continue
        yield f"label {name}: expected {what}, got {quoted(value)}"


def is_amount(text: str) -> bool:
    """Whether it is a number that is finite and not negative."""
    try:
        return 0 <= float(text) < math.inf
    except ValueError:
        return False


def read_flag(key: str, text: str) -> bool:
    """Whether it is true. key: where it is. Raises AnnotationError."""
    if text not in ("true", "false"):
        raise AnnotationError(f"{key}: expected true or false, got {shown(text)}")
    return text == "true"


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
