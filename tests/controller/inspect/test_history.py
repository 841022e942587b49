"""The history of a node over gRPC: which steps it has, and its bounds."""

import math
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import grpc
import pytest
from leadline_controller.inspect.history import span
from leadline_controller.telemetry.paths import PingRound
from leadline_wire.v1 import control_pb2 as pb
from leadline_wire.v1 import control_pb2_grpc

from tests.controller.inspect.harness import ControllerHarness, answering, node

if TYPE_CHECKING:  # its constructor makes a stub of either kind
    from leadline_wire.v1.control_pb2_grpc import InspectionAsyncStub as Stub
else:
    Stub = control_pb2_grpc.InspectionStub

NOW_S = 1_800_010_000.0
DAY_S = 86_400.0
BOOTED_S = 1_800_000_000.0


def asked(**fields: float) -> pb.GetHistoryRequest:
    return pb.GetHistoryRequest(name="n1", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("request_", "from_s", "step_s", "steps"),
    [
        (asked(), NOW_S - 3640, 60, 61),
        (asked(from_unix_s=-600), NOW_S - 640, 60, 11),
        (asked(from_unix_s=-6 * 3600, step_s=360), NOW_S - 6 * 3600 - 280, 360, 61),
        (asked(from_unix_s=NOW_S - 100, to_unix_s=NOW_S - 10), NOW_S - 100, 60, 2),
        (asked(from_unix_s=-DAY_S), None, 60, 1441),
        (asked(from_unix_s=-2 * DAY_S), None, 900, 193),
        (asked(from_unix_s=-2 * DAY_S, step_s=1000), None, 1800, None),
        (asked(from_unix_s=1), None, 900, 1441),
        (asked(from_unix_s=-1e300), None, 900, 1441),
        (asked(from_unix_s=1, step_s=1e300), None, 15 * DAY_S, None),
        (asked(to_unix_s=1e300), None, 60, None),
        (asked(from_unix_s=1, to_unix_s=2), None, None, 1),
        (asked(to_unix_s=12), None, None, 1),
        (asked(from_unix_s=-1e300, to_unix_s=12), None, None, 1),
        (asked(from_unix_s=NOW_S - 1, to_unix_s=1e300), None, None, None),
    ],
)
def test_the_steps_are_aligned_and_bounded(
    request_: pb.GetHistoryRequest, from_s: float | None, step_s: float | None, steps: int | None
) -> None:
    found = span(request_, NOW_S)
    assert found.from_s % found.step_s == 0
    assert found.step_s % 60 == 0
    assert 1 <= found.steps <= 1441
    assert found.from_s >= NOW_S - 30 * DAY_S
    assert found.steps * found.step_s <= 30 * DAY_S
    for value, expected in zip(found, (from_s, step_s, steps), strict=True):
        assert expected is None or value == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"from_unix_s": math.nan},
        {"to_unix_s": math.inf},
        {"step_s": -1.0},
        {"to_unix_s": -1.0},
        {"from_unix_s": NOW_S, "to_unix_s": NOW_S},
        {"from_unix_s": NOW_S + 10},
    ],
)
def test_times_that_make_no_sense_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="from_unix_s"):
        span(asked(**fields), NOW_S)


@pytest.fixture
def harness() -> ControllerHarness:
    """n1 was measured for 20 minutes, and n2 pinged."""
    harness = ControllerHarness()
    harness.now_s = 900.0
    for minute in range(20):
        for name in ("n1", "n2"):
            harness.hear(name, cpu_percent=float(minute))
        harness.telemetry.rtts("n1", harness.stamp("n1"), {"n2": PingRound(5.0)})
        harness.sample()
        harness.now_s += 60
    harness.sample()
    return harness


@pytest.fixture
async def stub(harness: ControllerHarness) -> AsyncIterator[Stub]:
    async with answering(harness) as address, grpc.aio.insecure_channel(address) as channel:
        yield Stub(channel)


async def test_stored_and_new_minutes_make_one_history(
    harness: ControllerHarness, stub: Stub
) -> None:
    answer = await stub.GetHistory(pb.GetHistoryRequest(name="n1", from_unix_s=-1260))
    assert answer.step_s == 60
    by_key = {(each.name, each.peer): each for each in answer.series}
    cpu = by_key["cpu_percent", ""]
    first = round((BOOTED_S + 900 - answer.from_unix_s) / 60)
    known = list(cpu.mean)[first : first + 20]
    # A report counts in the minute in which it was read.
    assert known == pytest.approx(list(range(20)), abs=0.02)
    assert all(map(math.isnan, list(cpu.mean)[:first]))
    assert list(cpu.min)[first] == list(cpu.max)[first] == known[0]
    rtts = list(by_key["rtt_ms", "n2"].mean)[first : first + 20]
    assert rtts == pytest.approx([5.0] * 20, rel=1e-3)
    assert len({len(each.mean) for each in answer.series}) == 1
    assert [each.peer for each in answer.series] == sorted(each.peer for each in answer.series)


async def test_series_are_chosen_by_name(stub: Stub) -> None:
    answer = await stub.GetHistory(
        pb.GetHistoryRequest(name="n2", from_unix_s=-1260, series=["rtt_ms", "cpu_percent"])
    )
    assert [(each.name, each.peer) for each in answer.series] == [
        ("cpu_percent", ""),
        ("rtt_ms", "n1"),
    ]


async def test_a_node_without_history_has_none_and_no_node_is_an_error(
    harness: ControllerHarness, stub: Stub
) -> None:
    from leadline_controller.framework.ports import NodeChanged

    harness.cluster.apply(NodeChanged(node("n3")))
    assert not (await stub.GetHistory(pb.GetHistoryRequest(name="n3"))).series
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.GetHistory(pb.GetHistoryRequest(name="nobody"))
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.GetHistory(pb.GetHistoryRequest(name="n1", from_unix_s=math.nan))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_a_node_is_answered_with_its_history_if_that_is_asked_for(stub: Stub) -> None:
    without = await stub.GetNode(pb.GetNodeRequest(name="n1"))
    assert not without.HasField("history")
    request = pb.GetNodeRequest(name="n1", history=pb.GetHistoryRequest(from_unix_s=-1260))
    assert (await stub.GetNode(request)).history.series[0].name == "cpu_percent"


async def test_confidence_falls_from_one_to_zero_as_a_value_ages(
    harness: ControllerHarness, stub: Stub
) -> None:
    seen = []
    for _ in range(5):
        metrics = (await stub.GetNode(pb.GetNodeRequest(name="n1"))).node.metrics
        seen += [each.confidence for each in metrics if each.name == "cpu_percent"]
        harness.now_s += 14
    assert seen == []  # it is older than a minute, and so unknown
    harness.hear("n1", cpu_percent=1.0)
    for _ in range(5):
        metrics = (await stub.GetNode(pb.GetNodeRequest(name="n1"))).node.metrics
        seen += [each.confidence for each in metrics if each.name == "cpu_percent"]
        harness.now_s += 14
    assert seen == pytest.approx([1 - (3 + 14 * number) / 60 for number in range(5)])
