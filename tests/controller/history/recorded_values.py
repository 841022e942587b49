"""Whatever a recording may hold, and a small one that tells a story."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from leadline_controller.framework.model import Node, Owner, Pod
from leadline_controller.framework.ports import (
    ImagePull,
    NodeChanged,
    PodChanged,
    PodDeleted,
    Relisted,
)
from leadline_controller.framework.traffic import PeerTraffic
from leadline_controller.history.recorded import (
    Began,
    Changed,
    Counted,
    Decided,
    Entry,
    Learnt,
    Missed,
    Pulled,
    Recorded,
    Used,
)
from leadline_controller.telemetry.accepted import Agent, Born, Pinged, Reported, Tested
from leadline_controller.telemetry.bandwidth_tests import BandwidthTest
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.paths import PingRound
from leadline_controller.telemetry.sequence import Stamp

KINDS = get_args(Recorded)
_PLAIN: Mapping[object, st.SearchStrategy[Any]] = {
    str: st.text(max_size=4),
    bool: st.booleans(),
    bytes: st.binary(max_size=4),
    float: st.floats(),
    int: st.integers(-(2**63), 2**64 - 1),
    NoneType: st.none(),
    Fraction: st.fractions(),
    # The columns of messages hold what the wire does.
    Stamp: st.builds(
        Stamp,
        *(st.binary(max_size=4), *[st.integers(0, 2**64 - 1)] * 3, st.floats(), st.booleans()),
    ),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of this type, and of a dataclass with every field set."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    kind, inside = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        return st.one_of(*map(values, inside))
    if kind is Literal:
        return st.sampled_from(inside)
    if kind is tuple and inside[-1] is not Ellipsis:
        return st.tuples(*map(values, inside))
    if kind in (tuple, list):
        return st.lists(values(inside[0]), max_size=2).map(kind)
    if kind is frozenset:
        return st.frozensets(values(inside[0]), max_size=2)
    if kind in (Mapping, dict) or kind is get_origin(Mapping[str, str]):
        return st.dictionaries(*map(values, inside), max_size=2)
    hints = get_type_hints(hint)
    names = [each.name for each in fields(hint)] if is_dataclass(hint) else hint._fields
    return st.builds(hint, **{name: values(hints[name]) for name in names})


def entries() -> st.SearchStrategy[list[Entry]]:
    """Some entries, of any kinds and times."""
    return st.lists(st.builds(Entry, st.floats(), values(Recorded)), min_size=1, max_size=4)


BEGAN = Began(1.7e9, "1.2.3", "home", "dacs", {"alpha": "0.5"}, 7, ttl={"rtt_s": 600.0})


def stamp(number: int, at_s: float, boot: bytes = b"boot") -> Stamp:
    return Stamp(boot, 1, number, number * 10_000, at_s)


def report(node: str, number: int, at_s: float, cpu: float = 10.0) -> Reported:
    reading = BoardReading({"cpu_percent": cpu, "memory_percent": 30.1}, [], {"throttled": False})
    return Reported(node, stamp(number, at_s), reading)


def story(minutes: int = 3) -> list[Entry]:
    """Two boards and a pod each minute."""
    nodes = tuple(Node(name, {"cpu": 4000, "memory": 2**32, "pods": 110}) for name in "ab")
    told = [
        Entry(100.0, BEGAN),
        Entry(100.1, Changed(Relisted(nodes, (Pod("default", "old", "u-old", node_name="a"),)))),
        *(Entry(100.2, Born(Agent(name, True), stamp(1, 100.0))) for name in "ab"),
        Entry(100.3, Learnt("web:1", "web@sha256:1", {"": ()})),
        Entry(100.4, Used({("default", frozenset({("app", "web")})): (0.2, 1e8)})),
        Entry(
            100.5,
            Counted(
                {("default", frozenset({("app", "web")})): (PeerTraffic("a", "node/a", 1, 2, 3),)},
                {"192.0.2.7": "a"},
                {"a": 0.5},
            ),
        ),
        Entry(100.6, Counted({}, {}, {})),
    ]
    for minute in range(minutes):
        at_s = 101.0 + 60 * minute
        number = 2 * minute + 2
        pod = Pod("default", f"p{minute}", f"u{minute}", owner=Owner("ReplicaSet", "web", "w"))
        told += [Entry(at_s, report(name, number, at_s, 10.0 + minute)) for name in "ab"]
        rounds = {"b": PingRound(0.5 + minute, 2, 2)}
        told += [
            Entry(at_s + 1, Pinged("a", stamp(number + 1, at_s + 1), rounds)),
            Entry(at_s + 2, Changed(PodChanged(pod))),
            Entry(at_s + 2, Decided(pod.uid, pod.key, "a")),
            Entry(at_s + 3, Pulled(ImagePull("a", pod.uid, "web:1", 3.0, 50.0))),
            Entry(at_s + 4, Changed(NodeChanged(nodes[1]))),
            Entry(at_s + 5, Tested(BandwidthTest("a", "b", 90.0, 0.4, at_s + 5))),
            Entry(at_s + 50, Changed(PodDeleted(pod))),
        ]
    return [*told, Entry(told[-1].at_s, Missed(1))]
