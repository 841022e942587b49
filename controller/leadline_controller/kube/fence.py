"""Keeps requests that act on the cluster within the time in which their sender may act."""

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from leadline_controller.framework.ports import Fence, NotLeadingError


class FencedBody(aiohttp.BytesPayload):
    """A request's JSON that is not sent once the fence has closed.

    Between the caller's look at the fence and this one lie a new connection and whatever else
    stopped this process. Nothing lies between this one and the socket; the headers go with it.
    """

    def __init__(self, value: bytes, fence: Fence | None) -> None:
        super().__init__(value, content_type="application/json")
        self._fence = fence

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        """Send it. Raises NotLeadingError, which aiohttp takes for a connection that broke."""
        if self._fence is not None:
            still_open_s(self._fence)
        await super().write_with_length(writer, content_length)


def still_open_s(fence: Fence) -> float:
    """Seconds until the fence closes. Raises NotLeadingError when it has."""
    left_s = fence.left_s()
    if left_s <= 0:
        raise NotLeadingError("this controller leads no longer")
    return left_s


def within(limits: aiohttp.ClientTimeout, fence: Fence | None) -> aiohttp.ClientTimeout:
    """The limits, and no longer than the fence is open. Raises NotLeadingError."""
    if fence is None:
        return limits
    left_s = still_open_s(fence)
    total_s = min(limits.total or left_s, left_s)
    return aiohttp.ClientTimeout(total=total_s, sock_connect=limits.sock_connect)
