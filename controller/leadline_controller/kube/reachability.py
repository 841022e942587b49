"""Which requests to the API server fail now, and when it answered last."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from leadline_controller.framework.ports import ClusterError, UnavailableError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RequestFailure:
    """A request that fails: its path, the error in one line, whether the server answered and said
    no, and when it began, in seconds on CLOCK_MONOTONIC."""

    path: str
    error: str
    refused: bool
    since_s: float


@dataclass(frozen=True, slots=True)
class Reachability:
    """How the API server is reached."""

    url: str
    # When it answered last, whatever was asked, and for each path; seconds on CLOCK_MONOTONIC.
    answered_s: float | None
    by_path: dict[str, float]
    failures: tuple[RequestFailure, ...]


class ReachabilityLog:
    """Logs once that the API server can't be used, and once that it can again, whichever of
    several watches notices first."""

    def __init__(self, url: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._now_s = now_s
        self._failing: dict[str, tuple[type[ClusterError], RequestFailure]] = {}
        self._answered_s: dict[str, float] = {}

    def failed(self, path: str, error: ClusterError) -> None:
        """A request for `path` failed."""
        refused = not isinstance(error, UnavailableError)
        if type(error) not in (kind for kind, _ in self._failing.values()):
            what = "refuses" if refused else "can't be reached"
            log.warning("API server %s %s: %s; trying again", self._url, what, error)
        before = self._failing.get(path)
        since_s = self._now_s() if before is None else before[1].since_s
        failure = RequestFailure(path, str(error), refused, since_s)
        self._failing[path] = (type(error), failure)

    def succeeded(self, path: str) -> None:
        """A request for `path` succeeded, or was refused as may be, or its watch brought
        something."""
        self._answered_s[path] = self._now_s()
        if self._failing.pop(path, None) and not self._failing:
            log.info("API server %s answers again", self._url)

    def status(self) -> Reachability:
        """What fails now, the longest first."""
        failures = sorted((each for _, each in self._failing.values()), key=lambda x: x.since_s)
        answered_s = max(self._answered_s.values(), default=None)
        return Reachability(self._url, answered_s, dict(self._answered_s), tuple(failures))
