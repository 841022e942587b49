"""What was recorded so far, as far as a replay needs it that begins now.

The states remember: the last rounds of pings of each pair, the last tests of each link, how long
pulls took. So a file begins with the newest messages that they still heed, and with the cluster.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from leadline_controller.framework.cluster_objects import ClusterObject
from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.ports import (
    ClusterChange,
    ImagePull,
    NodeChanged,
    NodeDeleted,
    ObjectChanged,
    ObjectDeleted,
    PodChanged,
    PodDeleted,
    Relisted,
)
from leadline_controller.history.recorded import (
    Began,
    Changed,
    Counted,
    Entry,
    Learnt,
    Pulled,
    Recorded,
    Used,
)
from leadline_controller.telemetry.accepted import Born, Pinged, Reported, Tested
from leadline_controller.telemetry.paths import PingRound
from leadline_controller.telemetry.sequence import Stamp

Item = TypeVar("Item")
# Of each board: enough for the error of its values, and for its round trips, of which the last
# three of a pair count.
_REPORTS, _ROUNDS, _PEERS = 6, 3, 64
# Whoever reaches the broker may invent boards.
_BOARDS = 20_000
_TESTS, _PULLS, _IMAGES = 4096, 32, 4096


@dataclass(slots=True)
class _Board:
    """The newest messages of a board, each with its number in the order of all."""

    births: deque[tuple[int, Recorded]] = field(default_factory=lambda: deque(maxlen=2))
    reports: deque[tuple[int, Recorded]] = field(default_factory=lambda: deque(maxlen=_REPORTS))
    rounds: OrderedDict[str, deque[tuple[int, Stamp, PingRound]]] = field(
        default_factory=OrderedDict
    )

    def ping(self, number: int, what: Pinged) -> None:
        """Keep a round."""
        for peer, each in what.rounds.items():
            self.rounds.setdefault(peer, deque(maxlen=_ROUNDS)).append((number, what.stamp, each))
            self.rounds.move_to_end(peer)
        while len(self.rounds) > _PEERS:
            self.rounds.popitem(last=False)

    def messages(self, node: str) -> Iterator[tuple[int, Recorded]]:
        """All of them."""
        yield from self.births
        yield from self.reports
        pings: dict[int, tuple[Stamp, dict[str, PingRound]]] = {}
        for peer, rounds in self.rounds.items():
            for number, stamp, each in rounds:
                pings.setdefault(number, (stamp, {}))[1][peer] = each
        for number, (stamp, found) in pings.items():
            yield number, Pinged(node, stamp, found)


class Start:
    """What a replay needs to begin after the entries that were added. ttl: of round trips and of
    bandwidths, seconds; what is older is left out."""

    def __init__(self, rtt_ttl_s: float = 600.0, bandwidth_ttl_s: float = 1800.0) -> None:
        self._rtt_ttl_s, self._bandwidth_ttl_s = rtt_ttl_s, bandwidth_ttl_s
        self._count = 0
        self._listed = False
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, Pod] = {}
        self._objects: dict[tuple[type, str], ClusterObject] = {}
        self._boards: OrderedDict[str, _Board] = OrderedDict()
        self._tests: deque[tuple[int, Tested]] = deque(maxlen=_TESTS)
        self._pulls: dict[str, deque[ImagePull]] = {}
        self._images: OrderedDict[str, Learnt] = OrderedDict()
        self._used: Used | None = None
        self._counted: Counted | None = None

    @classmethod
    def of(cls, began: Began) -> "Start":
        """That of a controller that begins now, which knows nothing."""
        return cls(began.ttl.get("rtt_s", 600.0), began.ttl.get("bandwidth_s", 1800.0))

    def add(self, what: Recorded) -> bool:
        """Take it in. Whether it says anything new: kubelets and controllers write much that no
        decision reads."""
        self._count += 1
        match what:
            case Changed(change):
                return self._change(change)
            case Born(agent):
                self._board(agent.node).births.append((self._count, what))
            case Reported(node):
                self._board(node).reports.append((self._count, what))
            case Pinged(node):
                self._board(node).ping(self._count, what)
            case Tested():
                self._tests.append((self._count, what))
            case Pulled(pull):
                self._pulls.setdefault(pull.node, deque(maxlen=_PULLS)).append(pull)
            case Learnt(image):
                _newest(self._images, image, _IMAGES, what)
            case Used():
                self._used = what
            case Counted():
                self._counted = what
        return True

    def _change(self, change: ClusterChange) -> bool:
        match change:
            case NodeChanged(node):
                return _put(self._nodes, node.name, node)
            case NodeDeleted(name):
                return self._nodes.pop(name, None) is not None
            case PodChanged(pod):
                return _put(self._pods, pod.uid, pod)
            case PodDeleted(pod):
                return self._pods.pop(pod.uid, None) is not None
            case ObjectChanged(found):
                return _put(self._objects, (type(found), found.key), found)
            case ObjectDeleted(found):
                return self._objects.pop((type(found), found.key), None) is not None
            case Relisted(nodes, pods, objects):
                self._listed = True
                self._nodes = {each.name: each for each in nodes}
                self._pods = {each.uid: each for each in pods}
                self._objects = {(type(each), each.key): each for each in objects}
                return True

    def entries(self, began: Began, at_s: float) -> Iterator[Entry]:
        """All that a replay needs to begin at this time, as entries of this time. Messages and
        tests keep the times at which they were measured."""
        return (Entry(at_s, what) for what in (began, *self._needed(at_s)))

    def _needed(self, at_s: float) -> Iterator[Recorded]:
        if self._listed:
            nodes, pods = self._nodes.values(), self._pods.values()
            yield Changed(Relisted((*nodes,), (*pods,), (*self._objects.values(),)))
        # A round of pings counts only if both boards are known, so each is born first.
        first = {board.births[0][0] for board in self._boards.values() if board.births}
        said = [
            (number not in first, number, what)
            for node, board in self._boards.items()
            for number, what in board.messages(node)
            if not isinstance(what, Pinged) or at_s - what.stamp.measured_s <= self._rtt_ttl_s
        ]
        tests = [
            (True, number, each)
            for number, each in self._tests
            if at_s - each.test.at_s <= self._bandwidth_ttl_s
        ]
        yield from (what for _, _, what in sorted([*said, *tests], key=lambda each: each[:2]))
        yield from self._images.values()
        for node, pulls in list(self._pulls.items()):
            if node in self._nodes:
                yield from (Pulled(replace(each, is_old=True)) for each in pulls)
            elif self._listed:
                del self._pulls[node]
        if self._used is not None:
            yield self._used
        if self._counted is not None:
            yield self._counted

    def _board(self, node: str) -> _Board:
        board = self._boards.get(node) or _Board()
        _newest(self._boards, node, _BOARDS, board)
        return board


def _newest(known: OrderedDict[str, Item], key: str, most: int, item: Item) -> None:
    """Put this last, and forget the first beyond `most`."""
    known[key] = item
    known.move_to_end(key)
    if len(known) > most:
        known.popitem(last=False)


def _put(known: dict[Any, Any], key: object, new: object) -> bool:
    """Whether that changed anything."""
    if known.get(key) == new:
        return False
    known[key] = new
    return True
