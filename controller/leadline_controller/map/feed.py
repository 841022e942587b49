"""The map's overview, and the stream of what changes in it.

One read of the controller serves every page: it is made at most once a second, compared with
the one before, and the difference is kept in a ring of events, each with its JSON already encoded.
A stream is a position in the ring; all differences since then become one event. So a slow page
costs nothing but its own delay, and one that was away for a moment misses nothing.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from leadline_wire.v1 import control_pb2 as pb

from leadline_controller import __version__
from leadline_controller.inspect import placements
from leadline_controller.inspect.nodes import NodeReader
from leadline_controller.inspect.parts import Observed
from leadline_controller.map import documents
from leadline_controller.map.journal import PlacementJournal, by_node
from leadline_controller.map.layout import Layout, layout
from leadline_controller.map.links import chosen

Json = dict[str, Any]
_POLL_S = 0.5  # also between two events of a stream
_REFRESH_S = 1.0
_LAYOUT_S = 3.0
# A read takes a fifth of a core at most, the layout a twentieth.
_READ_SHARE, _LAYOUT_SHARE = 5, 20
_HEARTBEAT_S = 15.0
_UNSEEN_S = 60.0  # the past is shown in minutes
_RING_EVENTS, _RING_BYTES = 1024, 8 * 1024 * 1024
_MOST_DECISIONS = 200  # of one look: a page keeps no more
_ERROR = "error_ms"  # grows with the age
_AGES = frozenset({"age_s", "bandwidth_age_s", _ERROR})
_LINES = {"retry": b"retry: 2000\n\n", "alive": b"event: alive\ndata: {}\n\n"}


class Event(NamedTuple):
    """A decision, or what changed in the overview: name or pair -> JSON, None if it is gone."""

    number: int
    decision: bytes | None
    nodes: Mapping[str, bytes | None]
    links: Mapping[tuple[str, str], bytes | None]
    size: int


@dataclass(frozen=True, slots=True)
class Picture:
    """What the overview showed last, and its JSON."""

    at_unix_s: float = 0.0
    nodes: Mapping[str, Json] = field(default_factory=dict)
    links: Mapping[tuple[str, str], Json] = field(default_factory=dict)


class Recorded(NamedTuple):
    """The hours of a recording that is shown in place of a controller, Unix seconds; what of it is
    missing, in words, empty if nothing is."""

    from_unix_s: float
    to_unix_s: float
    missing: str


class Feed:
    """Reads the controller and keeps what changed. anchors: boards whose links are all drawn.
    poll_s: how often it looks while somebody streams, and between two events of a stream. recorded:
    None if the source is a controller that runs."""

    def __init__(
        self,
        source: Observed,
        journal: PlacementJournal,
        anchors: Collection[str] = (),
        *,
        poll_s: float = _POLL_S,
        recorded: Recorded | None = None,
    ) -> None:
        self.recorded = recorded
        self.run_id = secrets.token_hex(8)
        self._source, self._journal, self._anchors = source, journal, anchors
        self._poll_s = poll_s
        self._lock = asyncio.Lock()
        self._loop_s = asyncio.get_running_loop().time
        self.picture, self.layout = Picture(), Layout()
        self._read_s = self._laid_s = float("-inf")
        self._pause_s = min(_REFRESH_S, 2 * poll_s)
        self._layout_s = self._layout_pause_s = min(_LAYOUT_S, 6 * poll_s)
        self._chosen: frozenset[tuple[str, str]] = frozenset()
        self._number = 0
        self._decision = max((each.number for each in source.decisions.all()), default=0)
        self._ring: deque[Event] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()
        self._wanted = asyncio.Event()
        self._streams = 0

    @property
    def streams(self) -> int:
        """How many are open."""
        return self._streams

    async def run(self) -> None:
        """Look for changes while anybody streams, and once a minute how boards are, until
        cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_UNSEEN_S):
                    await self._wanted.wait()
            if self._streams:
                await self.refresh()
                await asyncio.sleep(self._poll_s)
            else:
                await self._statuses(NodeReader(self._source))

    async def refresh(self) -> Picture:
        """The overview, at most a second old (in a large cluster a few seconds)."""
        async with self._lock:
            await self._add_decisions()
            if self._loop_s() - self._read_s < self._pause_s:
                return self.picture
            if self._loop_s() - self._laid_s >= self._layout_pause_s:
                await self._lay_out()
            began_s = self._loop_s()
            picture = await self._read()
            event = await asyncio.to_thread(_difference, self.picture, picture, self._number + 1)
            self.picture = picture
            if event is not None:
                self._append(event)
            self._read_s = self._loop_s()
            least_s = min(_REFRESH_S, 2 * self._poll_s)
            self._pause_s = max(least_s, _READ_SHARE * (self._read_s - began_s))
            return picture

    async def overview(self) -> bytes:
        """The overview's JSON."""
        picture = await self.refresh()
        # At once: what changes while the rest is read comes with the stream.
        number = f"{self.run_id}:{self._number}"
        head = await self.head()
        return await asyncio.to_thread(
            lambda: documents.encode_long(
                {
                    "run": self.run_id,
                    "stream_id": number,
                    **head,
                    "at_unix_s": picture.at_unix_s,
                    "live": self.recorded is None,
                    "pods_exact": True,
                    "states_known": True,
                },
                nodes=picture.nodes.values(),
                links=picture.links.values(),
            )
        )

    async def head(self) -> Json:
        """What every overview says about the controller."""
        source, now_unix_s = self._source, self.unix_s()
        first_s = await source.history.first_series_s()
        kept = None
        if first_s is not None:
            # The first block begins earlier than what is in it.
            from_s = max(first_s, int(self.recorded.from_unix_s)) if self.recorded else first_s
            kept = {"from_unix_s": from_s, "to_unix_s": int(now_unix_s) // 60 * 60, "step_s": 60}
        return {
            "cluster": source.cluster_name,
            "version": __version__,
            **self._state(),
            "now_unix_s": now_unix_s,
            "history": kept,
            "recorded": self.recorded and self.recorded._asdict(),
        }

    def unix_s(self) -> float:
        """The time; 0 if the clock was never set."""
        now = self._source.decisions.now()
        return round(now.unix_s(now) or 0.0, 3)

    async def stream(self, after: str | None) -> AsyncGenerator[bytes, None]:
        """The events after this id, for ever. Each chunk is one or more events."""
        self._streams += 1
        self._wanted.set()
        try:
            run, _, number = (after or "").partition(":")
            position, reload = self._number, ""
            if after:
                if run != self.run_id:
                    reload = "the controller was restarted"
                elif number.isascii() and number.isdigit() and len(number) < 19:
                    position = int(number)
            yield _LINES["retry"]
            while True:
                events = None if reload else self._after(position)
                if events is None:
                    why = {"why": reload or "too much happened meanwhile"}
                    position, reload = self._number, ""
                    yield self._event("reload", documents.encode(why), position)
                elif events:
                    position = events[-1].number
                    yield await asyncio.to_thread(self._encoded, events)
                self._changed.clear()
                if self._number == position:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_HEARTBEAT_S):
                            await self._changed.wait()
                    if self._number == position:
                        yield _LINES["alive"]
                        continue
                await asyncio.sleep(self._poll_s)
        finally:
            self._streams -= 1
            if not self._streams:
                self._wanted.clear()

    def _state(self) -> Json:
        source = self._source
        return {
            "strategy": source.rule.strategy.name,
            "leads": source.leadership.leads(),
            "lease_holder": source.leadership.holder(),
        }

    async def _add_decisions(self) -> None:
        source = self._source
        new = sorted(
            (each for each in source.decisions.all() if each.number > self._decision),
            key=lambda each: each.number,
        )
        if not new:
            return
        now = source.decisions.now()

        def encoded() -> list[bytes]:
            listed = [placements.placement(each, now) for each in new[-_MOST_DECISIONS:]]
            return [documents.encode(documents.decision(each)) for each in listed]

        for shown in await asyncio.to_thread(encoded):
            self._append(Event(self._number + 1, shown, {}, {}, len(shown)))
        self._decision = new[-1].number

    async def _statuses(self, reader: NodeReader) -> list[pb.NodeStatus]:
        """Those of all boards, which the journal keeps."""
        statuses = await reader.statuses()
        if self._source.state.listed:
            self._journal.boards.look(statuses)
        return statuses

    async def _read(self) -> Picture:
        reader = NodeReader(self._source)
        statuses = await self._statuses(reader)
        pods = dict(self._journal.now())
        laid = self.layout
        links = await asyncio.to_thread(reader.links_between, self._chosen)

        def shown() -> Picture:
            on = by_node(pods)
            nodes = {
                each.name: documents.node(
                    *(each, laid.positions.get(each.name, (0.5, 1.0)), on.get(each.name, ())),
                    placed=each.name in laid.positions and each.name not in laid.unplaced,
                )
                for each in statuses
            }
            drawn = {(x["a"], x["b"]): x for x in map(documents.link, links)}
            return Picture(self.unix_s(), nodes, drawn)

        return await asyncio.to_thread(shown)

    async def _lay_out(self) -> None:
        """Choose the links to draw, and where to draw boards."""
        began_s, names = self._loop_s(), NodeReader(self._source).names

        def laid_out() -> tuple[frozenset[tuple[str, str]], Layout]:
            pairs, here = self._source.telemetry.pairs(self._source.clock.now_s()), set(names)
            drawn = frozenset(x for x in chosen(pairs, self._anchors) if here.issuperset(x))
            return drawn, layout(names, pairs, self.layout)

        self._chosen, self.layout = await asyncio.to_thread(laid_out)
        self._laid_s = self._loop_s()
        self._layout_pause_s = max(self._layout_s, _LAYOUT_SHARE * (self._laid_s - began_s))

    def _append(self, event: Event) -> None:
        self._number = event.number
        self._ring.append(event)
        self._bytes += event.size
        while len(self._ring) > _RING_EVENTS or self._bytes > _RING_BYTES:
            self._bytes -= self._ring.popleft().size
        self._changed.set()

    def _after(self, position: int) -> list[Event] | None:
        """The events after this number; None if some of them are forgotten."""
        if position > self._number:
            return None
        count = self._number - position
        if count > len(self._ring):
            return None
        return [self._ring[at] for at in range(len(self._ring) - count, len(self._ring))]

    def _encoded(self, events: Sequence[Event]) -> bytes:
        """The decisions, and all changes of the overview as one event."""
        nodes: dict[str, bytes | None] = {}
        links: dict[tuple[str, str], bytes | None] = {}
        found = []
        for event in events:
            if event.decision is not None:
                found.append(self._event("decision", event.decision))
            nodes.update(event.nodes)
            links.update(event.links)
        if nodes or links:
            head = documents.encode(
                {
                    "at_unix_s": self.picture.at_unix_s,
                    **self._state(),
                    "gone_nodes": [name for name, shown in nodes.items() if shown is None],
                    "gone_links": [pair for pair, shown in links.items() if shown is None],
                }
            )
            data = b'%b,"nodes":[%b],"links":[%b]}' % (
                head[:-1],
                b",".join(each for each in nodes.values() if each is not None),
                b",".join(each for each in links.values() if each is not None),
            )
            found.append(self._event("overview", data))
        # What was sent without an id is sent again, if the connection breaks before this one.
        return b"".join(found) + b"id: %b:%d\n\n" % (self.run_id.encode(), events[-1].number)

    def _event(self, name: str, data: bytes, number: int | None = None) -> bytes:
        of = b"" if number is None else b"id: %b:%d\n" % (self.run_id.encode(), number)
        return b"event: %b\n%bdata: %b\n\n" % (name.encode(), of, data)


def _difference(before: Picture, after: Picture, number: int) -> Event | None:
    """What is shown differently, but for ages alone."""
    nodes = _changes(before.nodes, after.nodes)
    links = _changes(before.links, after.links)
    if not nodes and not links:
        return None
    size = sum(100 + len(each or b"") for each in (*nodes.values(), *links.values()))
    return Event(number, None, nodes, links, size)


def _changes(before: Mapping[Any, Json], after: Mapping[Any, Json]) -> dict[Any, bytes | None]:
    found: dict[Any, bytes | None] = dict.fromkeys(before.keys() - after.keys())
    for key, shown in after.items():
        old = before.get(key)
        if old is None or any(_is_news(name, old.get(name), shown[name]) for name in shown):
            found[key] = documents.encode(shown)
    return found


def _is_news(name: str, before: object, now: object) -> bool:
    """Whether a page can't know this value from the one before. An age grows by itself, unless the
    same was measured again."""
    if name not in _AGES or before is None or now is None:
        return now != before
    return name != _ERROR and now < before  # type: ignore[operator]  # numbers
