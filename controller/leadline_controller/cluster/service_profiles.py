"""Execution times of services on boards, as `leadline profile` measured them.

They are in a file that the administrator writes and the controller reads, and not in the
controller's database: a profile decides where pods go, so nobody who merely reaches the gRPC API
may set it, and several controllers can have the same file.
"""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from leadline_controller.framework.model import Pod
from leadline_controller.parsing.documents import read_document
from leadline_controller.parsing.fields import Fields

API_VERSION, KIND = "leadline.dev/v1", "ServiceProfiles"
_MOST_SERVICES = 1000
_MOST_BOARDS = 4096
_MOST_MS = 1e9


@dataclass(frozen=True, slots=True)
class BoardProfile:
    """The execution time of one request on a board, with the round trip taken off."""

    node_class: str  # its label leadline.dev/class, "" if none
    # Median and standard deviation over `requests`.
    ms: float
    deviation_ms: float
    rtt_ms: float  # the round trip that was taken off
    requests: int


@dataclass(frozen=True, slots=True)
class ServiceProfile:
    """The profile of the pods of a namespace with these labels."""

    namespace: str
    labels: Mapping[str, str]
    boards: Mapping[str, BoardProfile]  # by node
    measured: str = ""  # when, for a person

    def classes(self) -> dict[str, tuple[float, float, int]]:
        """Node class -> the mean of its boards' times, ms, the deviation of any one request on any
        of them from it, ms, and the number of boards."""
        found: dict[str, list[BoardProfile]] = {}
        for board in self.boards.values():
            if board.node_class:
                found.setdefault(board.node_class, []).append(board)
        classes = {}
        for name, boards in sorted(found.items()):
            mean = statistics.fmean(each.ms for each in boards)
            # The law of total variance.
            within = statistics.fmean(each.deviation_ms**2 for each in boards)
            between = statistics.fmean((each.ms - mean) ** 2 for each in boards)
            classes[name] = mean, math.sqrt(within + between), len(boards)
        return classes

    def profile_ms(self) -> dict[str, float]:
        """As leadline.dev/profile-ms: by node class, and by node."""
        by_class = {name: ms for name, (ms, _, _) in self.classes().items()}
        return by_class | {name: board.ms for name, board in self.boards.items()}


class _Measured(dict[str, float]):
    """Times that a service's profile gave to a pod. Those of its own annotation are none."""


class ServiceProfiles:
    """The profiles in force. Of several that match a pod, that with the most labels counts."""

    def __init__(self, profiles: Iterable[ServiceProfile] = ()) -> None:
        self._by_namespace: dict[str, list[tuple[Mapping[str, str], _Measured]]] = {}
        for each in sorted(profiles, key=lambda each: -len(each.labels)):
            measured = each.labels, _Measured(each.profile_ms())
            self._by_namespace.setdefault(each.namespace, []).append(measured)

    def applied(self, pod: Pod) -> Pod:
        """The pod with its service's profile, unless it has one of its own. What other profiles
        gave it is taken away."""
        has = pod.annotations.profile_ms
        if has and not isinstance(has, _Measured):
            return pod
        found: Mapping[str, float] = {}
        for labels, profile_ms in self._by_namespace.get(pod.namespace, ()):
            if labels.items() <= pod.labels.items():
                found = profile_ms
                break
        if found is has or not (found or has):
            return pod
        return replace(pod, annotations=replace(pod.annotations, profile_ms=found))


def read_profiles(path: Path) -> list[ServiceProfile]:
    """The profiles of a file. Raises FieldError; FileNotFoundError if there is none."""
    if not path.exists():
        raise FileNotFoundError(path)
    root = Fields(read_document(path), "")
    root.only("apiVersion", "kind", "services")
    root.choice("apiVersion", API_VERSION)
    root.choice("kind", KIND)
    services = list(root.objects("services"))
    if len(services) > _MOST_SERVICES:
        raise root.error("services", f"at most {_MOST_SERVICES}")
    return [_service(each) for each in services]


def _service(service: Fields) -> ServiceProfile:
    service.only("namespace", "pods", "measured", "boards", "classes")
    labels = service.text_map("pods")
    if not labels:
        raise service.error("pods", "labels of the service's pods, such as {app: web}")
    boards = service.object("boards")
    if not 0 < len(boards.data) <= _MOST_BOARDS:
        raise service.error("boards", f"1 to {_MOST_BOARDS} boards")
    return ServiceProfile(
        service.name("namespace"),
        labels,
        {name: _board(boards.object(name)) for name in boards.data},
        service.text("measured", ""),
    )


def _board(board: Fields) -> BoardProfile:
    board.only("class", "ms", "deviation_ms", "rtt_ms", "requests")
    ms = board.number("ms", _MOST_MS)
    if ms is None:
        raise board.error("ms", "milliseconds")
    return BoardProfile(
        board.text("class", ""),
        ms,
        board.number("deviation_ms", _MOST_MS) or 0.0,
        board.number("rtt_ms", _MOST_MS) or 0.0,
        board.integer("requests", 0, 10**9) or 0,
    )


def document(profiles: Sequence[ServiceProfile]) -> dict[str, Any]:
    """The file's content. The classes are for people and other programs; they are computed again
    when it is read."""
    return {"apiVersion": API_VERSION, "kind": KIND, "services": [_shown(x) for x in profiles]}


def with_profile(profiles: Sequence[ServiceProfile], new: ServiceProfile) -> list[ServiceProfile]:
    """With the new profile in place of that of the same service; boards that were not measured
    again keep what they had."""
    kept, boards = [], dict(new.boards)
    for each in profiles:
        if (each.namespace, dict(each.labels)) == (new.namespace, dict(new.labels)):
            boards = {**each.boards, **boards}
        else:
            kept.append(each)
    return [*kept, replace(new, boards=boards)]


def write_profiles(path: Path, profiles: Sequence[ServiceProfile]) -> None:
    """Write the file at once, so that a reader never sees half of it. Raises OSError."""
    half = path.with_name(f".{path.name}.new")
    half.write_text(json.dumps(document(profiles), indent=2) + "\n", encoding="utf-8")
    half.replace(path)


def _shown(service: ServiceProfile) -> dict[str, Any]:
    return {
        "namespace": service.namespace,
        "pods": dict(service.labels),
        "measured": service.measured,
        "boards": {
            name: {
                "class": board.node_class,
                "ms": round(board.ms, 3),
                "deviation_ms": round(board.deviation_ms, 3),
                "rtt_ms": round(board.rtt_ms, 3),
                "requests": board.requests,
            }
            for name, board in sorted(service.boards.items())
        },
        "classes": {
            name: {"ms": round(ms, 3), "deviation_ms": round(deviation_ms, 3), "boards": count}
            for name, (ms, deviation_ms, count) in service.classes().items()
        },
    }
