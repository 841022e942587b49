"""The overview at an earlier time, from the kept history and the kept decisions."""

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.inspect.order import in_order
from leadline_controller.inspect.parts import Observed
from leadline_controller.map import documents
from leadline_controller.map.feed import Feed, Picture
from leadline_controller.map.journal import BoardState, PlacedPod, PlacementJournal, by_node
from leadline_controller.telemetry.series import FINE, MEAN, RTT, Block, SeriesKey, resampled

Json = dict[str, Any]
OLDEST_S = 16 * 86_400
_UNKNOWN = BoardState("silent", in_cluster=None, ready=None, schedulable=None, notes=())
_Values = Mapping[SeriesKey, float]


async def overview(source: Observed, journal: PlacementJournal, feed: Feed, unix_s: float) -> bytes:
    """The JSON."""
    head, now_unix_s = await feed.head(), feed.unix_s()
    minute = int(unix_s) // FINE.step_s * FINE.step_s
    stored = await source.history.series_at(minute)
    newest = await asyncio.to_thread(source.sampler.blocks)
    at_s = journal.now_s() - (now_unix_s - unix_s)
    rewind, states, picture = journal.at(at_s), journal.boards.at(at_s), feed.picture
    if rewind is None:
        placed: Mapping[str, PlacedPod] = await _decided(source, journal, unix_s)
    else:
        placed = await asyncio.to_thread(rewind)

    def encoded() -> bytes:
        values = _values([*stored, *newest], minute)
        return documents.encode_long(
            {
                "run": feed.run_id,
                "stream_id": None,
                **head,
                "at_unix_s": minute,
                "live": False,
                "pods_exact": rewind is not None,
                "states_known": states is not None,
            },
            nodes=_nodes(picture, values, placed, states),
            links=_links(values),
        )

    return await asyncio.to_thread(encoded)


async def _decided(
    source: Observed, journal: PlacementJournal, unix_s: float
) -> dict[str, PlacedPod]:
    """The pods that are still where an earlier decision put them, by uid."""
    records, _ = await source.history.since(None)
    here, now = dict(journal.now()), source.decisions.now()

    def found() -> dict[str, PlacedPod]:
        placed = {}
        for record in records:
            at_s, pod = record.last.unix_s(now), here.get(record.uid)
            if pod is not None and pod.node == record.node and at_s is not None and at_s <= unix_s:
                placed[record.uid] = pod
        return placed

    return await asyncio.to_thread(found)


def _values(blocks: Iterable[tuple[str, Block]], minute: int) -> dict[str, _Values]:
    """Board -> the mean of each series in that minute."""
    of: dict[str, list[Block]] = {}
    for board, block in blocks:
        of.setdefault(board, []).append(block)
    found: dict[str, _Values] = {}
    for board, each in of.items():
        series = resampled(each, minute, 1, FINE.step_s)
        values = {key: float(points[0, MEAN]) for key, points in series.items()}
        if values := {key: value for key, value in values.items() if math.isfinite(value)}:
            found[board] = values
    return found


def _nodes(
    picture: Picture,
    values: Mapping[str, _Values],
    placed: Mapping[str, PlacedPod],
    states: Mapping[str, BoardState] | None,
) -> Iterable[Json]:
    """states: of the boards that were there; None if that is not known."""
    on = by_node(placed)
    there = picture.nodes if states is None else states
    for name in sorted({*there, *values, *on}, key=in_order):
        now, then = picture.nodes.get(name, {}), values.get(name, {})
        state = (states or {}).get(name, _UNKNOWN)
        agent = "silent" if state.agent == "online" else state.agent
        metrics = [pb.Measurement(name=key.name, value=value) for key, value in then.items()]
        status = pb.NodeStatus(
            name=name,
            agent="online" if any(key.name != RTT for key in then) else agent,
            in_cluster=state.in_cluster,
            ready=state.ready,
            schedulable=state.schedulable,
            tier=now.get("tier", ""),
            metrics=metrics,
            notes=state.notes,
        )
        position, placed_there = (now.get("x", 0.5), now.get("y", 1.0)), now.get("placed", False)
        shown = documents.node(status, position, on.get(name, []), placed=placed_there)
        # The series has bounds as well, and does not tell.
        kind = {"bandwidth_kind": "unknown", "bandwidth_age_s": None}
        yield shown | kind | {"in_cluster": state.in_cluster}


def _links(values: Mapping[str, _Values]) -> Sequence[Json]:
    rtts: dict[tuple[str, str], float] = {}
    for board, each in values.items():
        for key, value in each.items():
            if key.name == RTT and key.peer:
                a, b = sorted((board, key.peer))
                rtts[a, b] = value
    return [
        documents.link(pb.LinkStatus(a=a, b=b, rtt_ms=value, rtt_source="measured"))
        for (a, b), value in sorted(rtts.items())
    ]
