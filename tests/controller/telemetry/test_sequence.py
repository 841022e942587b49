from typing import Any

import pytest
from leadline_controller.telemetry.sequence import SequenceStatus, SequenceTracker, Stamp

CURRENT, LATE = SequenceStatus.CURRENT, SequenceStatus.LATE
DUPLICATE, OUT_OF_ORDER = SequenceStatus.DUPLICATE, SequenceStatus.OUT_OF_ORDER
A, B, C = (bytes([n] * 16) for n in range(3))


class Board:
    """Sends numbered messages to a tracker; the clock since boot moves with each."""

    def __init__(self) -> None:
        self.tracker = SequenceTracker()
        self.boot_id = A
        self.session = 5
        self.boot_ms = 1000

    def send(self, sequence: int, *, birth: bool = False, **changed: Any) -> SequenceStatus:
        self.boot_ms += 1000
        fields = {
            "boot_id": self.boot_id,
            "session": self.session,
            "measured_boot_ms": self.boot_ms,
        }
        return self.tracker.accept(Stamp(sequence=sequence, **{**fields, **changed}), birth=birth)

    def reboot(self, boot_id: bytes, session: int) -> None:
        self.boot_id, self.session, self.boot_ms = boot_id, session, 1000


@pytest.fixture
def board() -> Board:
    return Board()


def test_messages_in_turn_are_current_and_none_is_lost(board: Board) -> None:
    assert [board.send(n) for n in (7, 8, 9)] == [CURRENT] * 3
    assert board.tracker.lost == 0


def test_repeats_are_refused_and_change_nothing(board: Board) -> None:
    for n in (1, 2, 3):
        board.send(n)
    assert board.send(3) is DUPLICATE
    assert board.send(1) is OUT_OF_ORDER
    assert board.send(4) is CURRENT
    assert board.tracker.lost == 0


def test_a_gap_is_counted_once(board: Board) -> None:
    board.send(1)
    board.send(5)
    assert board.tracker.lost == 3
    assert board.send(3) is OUT_OF_ORDER
    assert board.tracker.lost == 3


def test_numbers_are_the_senders_to_choose_and_the_count_stays_bounded(board: Board) -> None:
    board.send(1)
    board.send(2**64 - 1)
    board.session += 1
    board.send(2**64 - 1)
    assert board.tracker.lost == 2**63


def test_a_later_session_takes_over_and_what_the_buffer_still_brings_is_late(board: Board) -> None:
    board.send(1)
    assert board.send(1, session=6) is CURRENT
    assert board.send(2) is LATE
    assert board.send(2) is DUPLICATE
    assert board.send(2, session=6) is CURRENT
    assert board.tracker.is_current(A, 6)
    assert not board.tracker.is_current(A, 5)
    assert board.tracker.lost == 0


def test_what_is_missing_at_the_begin_of_a_session_is_lost(board: Board) -> None:
    board.send(1)
    board.send(4, session=6)
    assert board.tracker.lost == 3


def test_late_sessions_do_not_push_the_present_one_out(board: Board) -> None:
    board.send(10)
    for session in range(5):
        for n in (1, 2):
            assert board.send(n, session=session) is LATE
    assert board.send(10) is DUPLICATE
    assert board.send(12) is CURRENT
    assert board.tracker.lost == 1


def test_another_boot_takes_over_and_the_one_before_does_not_come_back(board: Board) -> None:
    board.send(1)
    board.reboot(B, 6)
    assert board.send(1) is CURRENT
    assert board.send(9, boot_id=A, session=5) is LATE
    assert board.send(9, boot_id=A, session=7) is LATE  # a board cloned with its name
    assert board.send(2) is CURRENT


def test_what_was_measured_before_the_boot_is_history(board: Board) -> None:
    board.send(1)
    # The buffer of an earlier boot that this controller never saw: its age is unknown.
    assert board.send(3, boot_id=C, session=4, dated=False) is LATE
    assert board.send(4, boot_id=C, session=4, dated=False) is LATE
    assert board.send(2) is CURRENT


def test_history_alone_makes_no_session_current(board: Board) -> None:
    assert board.send(3, boot_id=C, session=9, dated=False) is LATE
    assert board.send(1) is CURRENT
    assert board.send(2) is CURRENT


def test_without_an_age_a_message_of_the_present_session_is_history_too(board: Board) -> None:
    board.send(1)
    assert board.send(2, dated=False) is LATE
    assert board.send(3) is CURRENT
    assert board.tracker.lost == 0


def test_a_counter_lost_with_its_file_starts_again_with_a_birth(board: Board) -> None:
    board.send(1)
    board.session = 1
    assert board.send(1) is LATE  # a report made before the connection, and so the birth
    assert board.send(2, birth=True) is CURRENT
    assert board.send(3) is CURRENT


def test_a_counter_that_is_lost_each_time_locks_nobody_out(board: Board) -> None:
    board.session = 1
    for n in range(1, 500):
        board.send(n)
    # The agent starts again, and again its session is the first.
    assert board.send(1, birth=True) is CURRENT
    assert board.send(2) is CURRENT
    assert board.tracker.lost == 0


def test_a_birth_sent_twice_does_not_start_a_session_again(board: Board) -> None:
    board.send(1, birth=True, measured_boot_ms=500)
    board.send(2)
    assert board.send(1, birth=True, measured_boot_ms=500) is OUT_OF_ORDER
    assert board.send(2) is DUPLICATE


def test_a_board_made_anew_is_believed_though_its_counter_is_lower(board: Board) -> None:
    board.send(1)
    board.reboot(B, 1)
    assert board.send(1) is CURRENT
    assert board.send(2, birth=True) is CURRENT


def test_what_the_broker_kept_is_a_baseline_and_no_gap(board: Board) -> None:
    assert board.send(1, birth=True, retained=True) is CURRENT
    assert board.send(40) is CURRENT
    assert board.tracker.lost == 0
    assert board.send(42) is CURRENT
    assert board.tracker.lost == 1


def test_what_the_broker_kept_does_not_replace_what_the_board_said_itself(board: Board) -> None:
    board.reboot(B, 6)
    board.send(3)
    assert board.send(1, boot_id=A, session=5, birth=True, retained=True) is LATE
    assert board.send(4) is CURRENT


def test_before_anything_is_known_every_session_may_be_the_present_one() -> None:
    assert SequenceTracker().is_current(A, 1)
