"""Tells the log whether the API server can be used, in two lines instead of two hundred."""

import logging

from leadline_controller.framework.ports import ClusterError, UnavailableError

_log = logging.getLogger(__name__)


class Contact:
    """Says once that the API server can't be used, and once that it can again, whichever of
    several watches notices first."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lost: dict[str, type[ClusterError]] = {}

    def lost(self, path: str, error: ClusterError) -> None:
        """A list or a watch of `path` could not be had."""
        if type(error) not in self._lost.values():
            said = "can't be reached" if isinstance(error, UnavailableError) else "refuses"
            _log.warning("API server %s %s: %s; trying again", self._url, said, error)
        self._lost[path] = type(error)

    def back(self, path: str) -> None:
        """A list or a watch of `path` was had."""
        if self._lost.pop(path, None) and not self._lost:
            _log.info("API server %s answers again", self._url)
