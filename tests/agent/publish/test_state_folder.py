"""The session's number grows with each start, and the state folder has one user."""

from pathlib import Path

import pytest
from leadline_agent.publish.session import SessionLock, StateError, boot_id, next_session


def started(folder: Path) -> int:
    lock = SessionLock(folder)
    lock.close()
    return lock.session


def test_each_start_has_a_new_session(tmp_path: Path) -> None:
    assert [started(tmp_path / "state") for _ in range(3)] == [1, 2, 3]


def test_two_agents_cannot_share_a_state_folder(tmp_path: Path) -> None:
    lock = SessionLock(tmp_path)
    with pytest.raises(StateError, match="another agent is using it"):
        SessionLock(tmp_path)
    lock.close()
    assert started(tmp_path) == 2


def test_a_folder_that_cannot_be_created_is_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="must be able to write there"):
        SessionLock(tmp_path / "file" / "state")


@pytest.mark.parametrize("damaged", [b"\0\0\0", b"one", b"\xff\n", b"9" * 32, b"-7\n"])
def test_a_damaged_counter_never_goes_back(damaged: bytes) -> None:
    assert next_session(damaged) > 1_000_000_000


def test_the_boot_id_is_the_kernels() -> None:
    text = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert boot_id().hex() == text.replace("-", "")
