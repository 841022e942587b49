"""Who is speaking: this boot of the board, and this session of the agent.

The session's number grows with each start; it is kept beside the buffer. The same file is
the lock that keeps two agents from sharing a state folder.
"""

import fcntl
import os
import time
from pathlib import Path
from uuid import UUID

MAX_SESSION = 1 << 53
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class StateError(Exception):
    """The state folder cannot be used; str() says why and what to do."""


def boot_id() -> bytes:
    """The 16 bytes that the kernel drew when this board booted."""
    return UUID(_BOOT_ID.read_text(encoding="ascii").strip()).bytes


class SessionLock:
    """Holds the state folder, and knows the number of this session in `session`."""

    def __init__(self, state_dir: Path) -> None:
        """Begin a session. Raises StateError."""
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
            self._write(b"%d\n" % self.session)
        except BlockingIOError:
            os.close(self._fd)
            raise StateError(f"state_dir {state_dir}: another agent is using it") from None
        except OSError as error:
            os.close(self._fd)
            raise StateError(f"{path}: cannot be written: {error.strerror}") from None

    def _write(self, text: bytes) -> None:
        # One write within one sector; the number of digits never falls.
        os.pwrite(self._fd, text, 0)
        os.fsync(self._fd)

    def close(self) -> None:
        """Let go of the folder."""
        os.close(self._fd)


def next_session(text: bytes) -> int:
    """The session after the one in the file; seconds of the wall clock if it is damaged.

    An empty file is a board's first start. The wall clock is past any count of starts.
    """
    if not text:
        return 1
    try:
        session = int(text) + 1
    except ValueError:
        session = 0
    return session if 0 < session < MAX_SESSION else int(time.time())
