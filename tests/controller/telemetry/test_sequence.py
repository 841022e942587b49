from typing import Any

import pytest
from leadline_controller.telemetry.sequence import SequenceStatus, SequenceTracker, Stamp

CURRENT, LATE = SequenceStatus.CURRENT, SequenceStatus.LATE
DUPLICATE, OUT_OF_ORDER = SequenceStatus.DUPLICATE, SequenceStatus.OUT_OF_ORDER
A, B, C = (bytes([n] * 16) for n in range(3))


UNDATED = {"measured_s": float("-inf")}
BIRTH, RETAINED = {"birth": True}, {"retained": True}
BORN = {"birth": True, "measured_boot_ms": 500}
NEXT, FIRST = {"session": 6}, {"session": 1}
REBOOTED: dict[str, Any] = {"boot_id": B, "session": 6}
C_LATER: dict[str, Any] = {"boot_id": C, "session": 9, **UNDATED}
C_EARLIER: dict[str, Any] = {"boot_id": C, "session": 4, **UNDATED}
# Messages as (sequence, what differs from the sender's own, status), and how many are lost.
Case = tuple[list[tuple[int, dict[str, Any], SequenceStatus]], int]
CASES: dict[str, Case] = {
    "messages in turn are current": ([(7, {}, CURRENT), (8, {}, CURRENT), (9, {}, CURRENT)], 0),
    "duplicates change nothing": (
        [(1, {}, CURRENT), (2, {}, CURRENT), (2, {}, DUPLICATE), (1, {}, OUT_OF_ORDER)],
        0,
    ),
    "a gap is counted once": ([(1, {}, CURRENT), (5, {}, CURRENT), (3, {}, OUT_OF_ORDER)], 3),
    "the count is bounded": (
        [(1, {}, CURRENT), (2**64 - 1, {}, CURRENT), (2**64 - 1, NEXT, CURRENT)],
        2**63,
    ),
    "buffered messages of an earlier session are late": (
        [(1, {}, CURRENT), (1, NEXT, CURRENT), (2, {}, LATE), (2, NEXT, CURRENT)],
        0,
    ),
    "messages at the start of a session are lost": ([(1, {}, CURRENT), (4, NEXT, CURRENT)], 3),
    "late sessions do not evict the current one": (
        [(10, {}, CURRENT)]
        + [(n, {"session": session}, LATE) for session in range(5) for n in (1, 2)]
        + [(10, {}, DUPLICATE), (12, {}, CURRENT)],
        1,
    ),
    "an earlier boot does not return": (
        # At last a board cloned with its name.
        [
            *((1, {}, CURRENT), (1, REBOOTED, CURRENT), (9, {}, LATE)),
            *((9, {"session": 7}, LATE), (2, REBOOTED, CURRENT)),
        ],
        7,
    ),
    # The buffer of an earlier boot that this controller never saw: its age is unknown.
    "a message from before the boot is late": (
        [(1, {}, CURRENT), (3, C_EARLIER, LATE), (4, C_EARLIER, LATE), (2, {}, CURRENT)],
        0,
    ),
    "late messages alone make no session current": (
        [(3, C_LATER, LATE), (1, {}, CURRENT), (2, {}, CURRENT)],
        0,
    ),
    "an undated message of the session is late": (
        [(1, {}, CURRENT), (2, UNDATED, LATE), (3, {}, CURRENT)],
        0,
    ),
    # A report made before the connection comes before the birth.
    "a lost session counter starts again with a birth": (
        [(1, {}, CURRENT), (1, FIRST, LATE), (2, FIRST | BIRTH, CURRENT), (3, FIRST, CURRENT)],
        1,  # what came late counts as lost when its session begins
    ),
    "a session counter that is always lost is accepted": (
        [(n, FIRST, CURRENT) for n in range(1, 500)]
        + [(1, FIRST | BIRTH, CURRENT), (2, FIRST, CURRENT)],
        0,
    ),
    "a duplicate birth does not restart the session": (
        [(1, BORN, CURRENT), (2, {}, CURRENT), (1, BORN, OUT_OF_ORDER), (2, {}, DUPLICATE)],
        0,
    ),
    "a reinstalled board with a lower counter is accepted": (
        [(1, {}, CURRENT), (1, REBOOTED | FIRST, CURRENT), (2, REBOOTED | FIRST | BIRTH, CURRENT)],
        0,
    ),
    "a retained message is a baseline and not a gap": (
        [(1, BIRTH | RETAINED, CURRENT), (40, {}, CURRENT), (42, {}, CURRENT)],
        1,
    ),
    "a retained message does not replace the board's own": (
        [(3, REBOOTED, CURRENT), (1, BIRTH | RETAINED, LATE), (4, REBOOTED, CURRENT)],
        0,
    ),
}


@pytest.mark.parametrize(("messages", "lost"), CASES.values(), ids=CASES.keys())
def test_what_is_current_and_how_many_are_lost(
    messages: list[tuple[int, dict[str, Any], SequenceStatus]], lost: int
) -> None:
    tracker, boot_ms = SequenceTracker(), dict.fromkeys((A, B, C), 1000)
    for sequence, changed, status in messages:
        boot_id = changed.get("boot_id", A)
        boot_ms[boot_id] += 1000
        fields = {"boot_id": A, "session": 5, "measured_boot_ms": boot_ms[boot_id], **changed}
        birth = fields.pop("birth", False)
        assert tracker.accept(Stamp(sequence=sequence, **fields), birth=birth) is status
    assert tracker.lost == lost


def test_the_session_of_the_newest_message_is_current() -> None:
    tracker = SequenceTracker()
    assert tracker.is_current(A, 1)  # before the first message, any is
    for session in (5, 6):
        tracker.accept(Stamp(A, session, 1, 1000 * session))
    assert tracker.is_current(A, 6)
    assert not tracker.is_current(A, 5)
