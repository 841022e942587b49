"""Identifies the sender: the boot of the board and the session of the agent.

The session's number grows with each start and is stored beside the buffer. The same file is the
lock that prevents two agents from sharing a state folder.
"""

import fcntl
import os
import time
from pathlib import Path
from uuid import UUID

MAX_SESSION = 1 << 53
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class StateError(Exception):
    """The state folder is unusable; str() says why and what to do."""


def boot_id() -> bytes:
    """The 16 random bytes that the kernel drew at boot."""
    return UUID(_BOOT_ID.read_text(encoding="ascii").strip()).bytes


class SessionLock:
    """Locks the state folder; `session` is the number of this session."""

    def __init__(self, state_dir: Path) -> None:
        """Lock the folder and begin a session. Raises StateError."""
        path = state_dir / "session"
        try:
            state_dir.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateError(
                f"state_dir {state_dir}: {error.strerror}; the agent must be able to write there"
            ) from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.session = next_session(os.pread(self._fd, 32, 0))
            # One write within one sector; the number of digits never falls.
            os.pwrite(self._fd, b"%d\n" % self.session, 0)
            os.fsync(self._fd)
        except BlockingIOError:
            os.close(self._fd)
            raise StateError(f"state_dir {state_dir}: another agent is using it") from None
        except OSError as error:
            os.close(self._fd)
            raise StateError(f"{path}: cannot be written: {error.strerror}") from None

    def close(self) -> None:
        """Unlock the folder."""
        os.close(self._fd)


def next_session(text: bytes) -> int:
    """The session after the one in the file; seconds of the wall clock if the file is damaged.

    An empty file is a board's first start. The wall clock is larger than any number of starts.
    """
    if not text:
        return 1
    try:
        session = int(text) + 1
    except ValueError:
        session = 0
    return session if 0 < session < MAX_SESSION else int(time.time())
