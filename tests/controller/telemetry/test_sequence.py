from typing import Any

import pytest
from leadline_controller.telemetry.sequence import SequenceStatus, SequenceTracker, Stamp

CURRENT, LATE = SequenceStatus.CURRENT, SequenceStatus.LATE
DUPLICATE, OUT_OF_ORDER = SequenceStatus.DUPLICATE, SequenceStatus.OUT_OF_ORDER
A, B, C = (bytes([n] * 16) for n in range(3))


class NumberedSender:
    """Sends numbered messages to a tracker; each advances the clock since boot."""

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
def sender() -> NumberedSender:
    return NumberedSender()


def test_messages_in_turn_are_current_and_none_is_lost(sender: NumberedSender) -> None:
    assert [sender.send(n) for n in (7, 8, 9)] == [CURRENT] * 3
    assert sender.tracker.lost == 0


def test_duplicates_are_refused_and_change_nothing(sender: NumberedSender) -> None:
    for n in (1, 2, 3):
        sender.send(n)
    assert sender.send(3) is DUPLICATE
    assert sender.send(1) is OUT_OF_ORDER
    assert sender.send(4) is CURRENT
    assert sender.tracker.lost == 0


def test_a_gap_is_counted_once(sender: NumberedSender) -> None:
    sender.send(1)
    sender.send(5)
    assert sender.tracker.lost == 3
    assert sender.send(3) is OUT_OF_ORDER
    assert sender.tracker.lost == 3


def test_the_count_of_lost_messages_is_bounded(sender: NumberedSender) -> None:
    sender.send(1)
    sender.send(2**64 - 1)
    sender.session += 1
    sender.send(2**64 - 1)
    assert sender.tracker.lost == 2**63


def test_a_later_session_becomes_current_and_buffered_messages_are_late(
    sender: NumberedSender,
) -> None:
    sender.send(1)
    assert sender.send(1, session=6) is CURRENT
    assert sender.send(2) is LATE
    assert sender.send(2) is DUPLICATE
    assert sender.send(2, session=6) is CURRENT
    assert sender.tracker.is_current(A, 6)
    assert not sender.tracker.is_current(A, 5)
    assert sender.tracker.lost == 0


def test_missing_messages_at_the_start_of_a_session_are_lost(sender: NumberedSender) -> None:
    sender.send(1)
    sender.send(4, session=6)
    assert sender.tracker.lost == 3


def test_late_sessions_do_not_evict_the_current_one(sender: NumberedSender) -> None:
    sender.send(10)
    for session in range(5):
        for n in (1, 2):
            assert sender.send(n, session=session) is LATE
    assert sender.send(10) is DUPLICATE
    assert sender.send(12) is CURRENT
    assert sender.tracker.lost == 1


def test_a_new_boot_becomes_current_and_an_earlier_one_does_not_return(
    sender: NumberedSender,
) -> None:
    sender.send(1)
    sender.reboot(B, 6)
    assert sender.send(1) is CURRENT
    assert sender.send(9, boot_id=A, session=5) is LATE
    assert sender.send(9, boot_id=A, session=7) is LATE  # a board cloned with its name
    assert sender.send(2) is CURRENT


def test_a_message_from_before_the_boot_is_late(sender: NumberedSender) -> None:
    sender.send(1)
    # The buffer of an earlier boot that this controller never saw: its age is unknown.
    assert sender.send(3, boot_id=C, session=4, measured_s=float("-inf")) is LATE
    assert sender.send(4, boot_id=C, session=4, measured_s=float("-inf")) is LATE
    assert sender.send(2) is CURRENT


def test_late_messages_alone_make_no_session_current(sender: NumberedSender) -> None:
    assert sender.send(3, boot_id=C, session=9, measured_s=float("-inf")) is LATE
    assert sender.send(1) is CURRENT
    assert sender.send(2) is CURRENT


def test_an_undated_message_of_the_current_session_is_late(sender: NumberedSender) -> None:
    sender.send(1)
    assert sender.send(2, measured_s=float("-inf")) is LATE
    assert sender.send(3) is CURRENT
    assert sender.tracker.lost == 0


def test_a_lost_session_counter_starts_again_with_a_birth(sender: NumberedSender) -> None:
    sender.send(1)
    sender.session = 1
    assert sender.send(1) is LATE  # a report made before the connection, and so the birth
    assert sender.send(2, birth=True) is CURRENT
    assert sender.send(3) is CURRENT


def test_a_session_counter_that_is_always_lost_is_accepted(sender: NumberedSender) -> None:
    sender.session = 1
    for n in range(1, 500):
        sender.send(n)
    # The agent starts again, and again its session is the first.
    assert sender.send(1, birth=True) is CURRENT
    assert sender.send(2) is CURRENT
    assert sender.tracker.lost == 0


def test_a_duplicate_birth_does_not_restart_the_session(sender: NumberedSender) -> None:
    sender.send(1, birth=True, measured_boot_ms=500)
    sender.send(2)
    assert sender.send(1, birth=True, measured_boot_ms=500) is OUT_OF_ORDER
    assert sender.send(2) is DUPLICATE


def test_a_reinstalled_board_with_a_lower_counter_is_accepted(sender: NumberedSender) -> None:
    sender.send(1)
    sender.reboot(B, 1)
    assert sender.send(1) is CURRENT
    assert sender.send(2, birth=True) is CURRENT


def test_a_retained_message_is_a_baseline_and_not_a_gap(sender: NumberedSender) -> None:
    assert sender.send(1, birth=True, retained=True) is CURRENT
    assert sender.send(40) is CURRENT
    assert sender.tracker.lost == 0
    assert sender.send(42) is CURRENT
    assert sender.tracker.lost == 1


def test_a_retained_message_does_not_replace_the_boards_own(sender: NumberedSender) -> None:
    sender.reboot(B, 6)
    sender.send(3)
    assert sender.send(1, boot_id=A, session=5, birth=True, retained=True) is LATE
    assert sender.send(4) is CURRENT


def test_any_session_may_be_current_before_the_first_message() -> None:
    assert SequenceTracker().is_current(A, 1)
