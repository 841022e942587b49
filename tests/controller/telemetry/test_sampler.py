"""What the sampler keeps of minutes and quarters, and when it has it written."""

from collections.abc import Iterable

import numpy as np
import pytest
from leadline_controller.framework.view import Floats
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.paths import PingRound
from leadline_controller.telemetry.sampler import PEERS, Sampler
from leadline_controller.telemetry.sequence import Stamp
from leadline_controller.telemetry.series import FINE, MEAN, Block, SeriesKey
from leadline_controller.telemetry.state import TelemetryState, TimesToLive

UNIX_S = 1_800_000_000.0  # a quarter begins
CPU = SeriesKey("cpu_percent")


class Boards:
    """A sampler that reads boards, and both clocks. written: all that it has had written."""

    def __init__(self, anchors: Iterable[str] = ()) -> None:
        self.now_s, self.unix_s = 1000.0, UNIX_S
        self.telemetry = TelemetryState(TimesToLive())
        self.sampler = Sampler(self.telemetry, tuple(anchors))
        self.written: list[tuple[str, Block]] = []
        self._sent = 0

    def stamp(self) -> Stamp:
        self._sent += 1
        return Stamp(bytes(16), 1, self._sent, self._sent, self.now_s)

    def report(self, name: str, **values: float) -> None:
        self.telemetry.report(name, self.stamp(), BoardReading(values))

    def ping(self, name: str, rtts_ms: dict[str, float]) -> None:
        rounds = {peer: PingRound(rtt_ms) for peer, rtt_ms in rtts_ms.items()}
        self.telemetry.rtts(name, self.stamp(), rounds)

    def wait(self, seconds: float) -> None:
        self.written += self.sampler.sample(self.now_s, self.unix_s)
        self.now_s += seconds
        self.unix_s += seconds

    def minutes(self, name: str, values: Iterable[float]) -> None:
        for value in values:
            self.report(name, cpu_percent=value)
            self.wait(60)

    def last(self, name: str) -> Block:
        """The newest block of the board that was written."""
        return next(block for board, block in reversed(self.written) if board == name)


def points(block: Block | None, key: SeriesKey) -> Floats:
    assert block is not None
    found: Floats = block.points[block.keys.index(key)]
    return found


def test_a_minute_has_the_mean_and_the_extremes_of_its_values() -> None:
    boards = Boards()
    for value in (10.0, 40.0, 10.0):
        boards.report("a", cpu_percent=value)
        boards.wait(10)
    boards.wait(30)  # nothing new: the last value does not count again
    boards.wait(0)
    found = points(boards.sampler.block("a"), CPU)
    assert found[0].tolist() == [20.0, 10.0, 40.0]
    assert np.isnan(found[1:]).all()
    assert boards.sampler.block("b") is None


def test_a_minute_without_a_value_is_unknown() -> None:
    boards = Boards()
    boards.minutes("a", (1.0, 2.0))
    boards.wait(60)
    boards.minutes("a", (4.0,))
    boards.wait(0)
    found = points(boards.sampler.block("a"), CPU)[:5, MEAN]
    np.testing.assert_array_equal(found, [1.0, 2.0, np.nan, 4.0, np.nan])


def test_few_boards_are_written_each_minute_and_many_once_a_quarter() -> None:
    for count, times in ((1, 15), (4, 15), (5, 8), (60, 1), (1000, 1)):
        boards = Boards()
        for minute in range(16):
            for number in range(count):
                boards.report(f"b{number}", cpu_percent=float(minute))
            boards.wait(60)
        quarter = [block for board, block in boards.written if board == "b0"]
        # The first time is at once, so that a large cluster has two.
        assert len(quarter) in (times, times + 1), count
        known = points(quarter[-1], CPU)[:, MEAN]
        assert known.tolist() == list(range(15))


def test_a_quarter_that_ends_is_written_and_the_next_one_begins_empty() -> None:
    boards = Boards()
    boards.minutes("a", map(float, range(17)))
    first = [block for _, block in boards.written if block.start_s == UNIX_S]
    assert points(first[-1], CPU)[:, MEAN].tolist() == list(range(15))
    boards.wait(0)
    current = boards.sampler.block("a")
    assert current is not None
    assert current.start_s == UNIX_S + FINE.block_s
    np.testing.assert_array_equal(points(current, CPU)[:3, MEAN], [15.0, 16.0, np.nan])


def test_at_the_end_the_present_minute_is_written_too() -> None:
    boards = Boards()
    assert boards.sampler.last() == []
    boards.minutes("a", (1.0,))
    boards.report("a", cpu_percent=7.0)
    boards.wait(5)
    ((name, block),) = boards.sampler.last()
    assert name == "a"
    assert points(block, CPU)[:2, MEAN].tolist() == [1.0, 7.0]


@pytest.mark.parametrize("jump_s", [-3600.0, -60.0, 3600.0, 30 * 86_400.0, -UNIX_S + 10])
def test_when_the_clock_jumps_what_was_measured_before_is_written(jump_s: float) -> None:
    boards = Boards()
    boards.minutes("a", (1.0, 2.0, 3.0))
    boards.unix_s += jump_s
    after_s = boards.unix_s
    boards.minutes("a", (4.0, 5.0))
    boards.wait(0)
    before = max(
        (block for _, block in boards.written if block.start_s == UNIX_S),
        key=lambda block: int((~np.isnan(points(block, CPU)[:, MEAN])).sum()),
    )
    assert {1.0, 2.0} <= set(points(before, CPU)[:, MEAN].tolist())
    current = boards.sampler.block("a")
    assert current is not None
    assert current.start_s == after_s // FINE.block_s * FINE.block_s
    assert 5.0 in points(current, CPU)[:, MEAN]


def test_a_board_keeps_its_anchors_and_few_other_peers_however_many_it_measures() -> None:
    boards = Boards(anchors=("anchor",))
    names = ["a", "anchor", *(f"p{number}" for number in range(30))]
    for name in names:
        boards.report(name, cpu_percent=1.0)
    boards.ping("a", {f"p{number}": 10.0 + number for number in range(30)})
    boards.wait(60)
    boards.wait(0)
    kept = {key.peer for key in _keys(boards, "a") if key.peer}
    assert kept == {f"p{number}" for number in range(PEERS)}  # the nearest
    boards.ping("a", {"anchor": 99.0})
    boards.ping("p29", {"a": 1.0})  # nearer now, but those that are kept stay
    boards.wait(60)
    boards.wait(0)
    assert {key.peer for key in _keys(boards, "a") if key.peer} == {
        *(f"p{number}" for number in range(PEERS - 1)),
        "anchor",
    }
    (rtt,) = (points(boards.sampler.block("p29"), key) for key in _keys(boards, "p29") if key.peer)
    assert rtt[1].tolist() == [20.0, 20.0, 20.0]  # the median of both rounds; at both ends


def _keys(boards: Boards, name: str) -> tuple[SeriesKey, ...]:
    block = boards.sampler.block(name)
    assert block is not None
    return block.keys


def test_boards_and_pairs_that_are_not_measured_any_more_are_forgotten() -> None:
    boards = Boards()
    for number in range(5):
        boards.report(f"b{number}", cpu_percent=1.0)
    boards.ping("b0", {"b1": 1.0, "b2": 2.0})
    boards.wait(60)
    for _ in range(31):
        boards.report("b0", cpu_percent=1.0)
        boards.ping("b0", {"b2": 2.0})
        boards.wait(60)
    assert boards.last("b0").keys == (CPU, SeriesKey("rtt_ms", "b2"))
    later = {board for board, block in boards.written if block.start_s > UNIX_S}
    assert later == {"b0", "b2"}
    assert boards.sampler.block("b4") is None
