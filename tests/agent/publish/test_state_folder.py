"""The session's number grows with each start, and the state folder has one user."""

import errno
import fcntl
import itertools
import os
from pathlib import Path
from types import ModuleType

import pytest
from leadline_agent.publish.session import (
    CARD_FAULTS,
    SessionLock,
    StateError,
    boot_id,
    next_session,
)


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


@pytest.mark.parametrize(
    ("module", "call", "number"),
    [
        *itertools.product([os], ["open", "pwrite", "fsync"], sorted(CARD_FAULTS)),
        # A board that booted from a server, which may not lock.
        *itertools.product([fcntl], ["flock"], [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS]),
    ],
)
def test_a_card_that_cannot_be_written_does_not_keep_the_agent_from_measuring(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    module: ModuleType,
    call: str,
    number: int,
) -> None:
    started(tmp_path)

    def fails(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(module, call, fails)
    times_ms = iter((5000, 9000))
    monkeypatch.setattr("leadline_agent.publish.session.boot_ms", lambda: next(times_ms))
    assert [started(tmp_path), started(tmp_path)] == [5000, 9000]  # each start has a new session
    assert caplog.messages[0] == caplog.messages[1]
    assert f"{tmp_path}: {os.strerror(number)}; the agent runs without it" in caplog.messages[0]


@pytest.mark.parametrize("damaged", [b"\0\0\0", b"one", b"\xff\n", b"9" * 32, b"-7\n"])
def test_a_damaged_counter_never_goes_back(damaged: bytes) -> None:
    assert next_session(damaged) > 1_000_000_000


def test_the_boot_id_is_the_kernels() -> None:
    text = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert boot_id().hex() == text.replace("-", "")
