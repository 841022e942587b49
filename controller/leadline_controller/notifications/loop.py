"""Looks for problems and has them told, while this controller leads.

What was told is kept in a note of the cluster, so the next leader does not tell it again. It is
written when a message has arrived: a receiver that is away loses nothing, and only a controller
that dies at that moment makes the next one repeat it.
"""

import logging
from collections.abc import Awaitable, Callable

from leadline_wire.v1 import status_pb2 as pb

from leadline_controller.framework.ports import Clock, Cluster, ClusterError, Leadership
from leadline_controller.inspect.parts import Delivery
from leadline_controller.inspect.problems import can_end
from leadline_controller.logs import ErrorLog
from leadline_controller.notifications import told
from leadline_controller.notifications.receivers import NotSentError, Receiver
from leadline_controller.notifications.settings import NotifySettings

log = logging.getLogger(__name__)

NOTE = "told"
LOOK_S = 10.0
_LOOK_SHARE = 20  # a look at 10,000 boards takes a second
_TIMEOUT_S = 10.0
_RAREST_S = 600.0  # between tries


class Notifications:
    """name: of the cluster. cluster: keeps the note, fenced by the leadership. unix_s: seconds
    since 1970, None while the clock is not set; nothing is told until then."""

    def __init__(
        self,
        settings: NotifySettings,
        name: str,
        receiver: Receiver,
        cluster: Cluster,
        leadership: Leadership,
        clock: Clock,
        unix_s: Callable[[], float | None],
    ) -> None:
        self._settings, self._name, self._receiver = settings, name, receiver
        self._cluster, self._leadership = cluster, leadership
        self._clock, self._unix_s = clock, unix_s
        self._state: told.State | None = None  # None: the note is not read
        self._is_kept = True
        self._failed = 0  # tries in a row
        self._next_s, self._took_s = float("-inf"), 0.0
        self.delivery = Delivery(receiver.name)

    async def run(self, look: Callable[[], Awaitable[pb.GetStatusResponse]]) -> None:
        """Tell what `look` finds, until cancelled."""
        errors = ErrorLog(log, logging.WARNING)
        while True:
            try:
                await self._turn(look)
                if not self._failed:
                    errors.succeeded()
            except Exception as error:  # noqa: BLE001  # any error is logged once
                why = str(error) if isinstance(error, ClusterError | NotSentError) else repr(error)
                errors.failed(why, "notifying %s, trying again: %s", self._receiver.name)
            await self._clock.sleep(max(LOOK_S, _LOOK_SHARE * self._took_s))

    async def _turn(self, look: Callable[[], Awaitable[pb.GetStatusResponse]]) -> None:
        unix_s = self._unix_s()
        if not self._leadership.leads() or unix_s is None:
            self._state, self._is_kept, self._failed = None, True, 0
            self.delivery.problem, self.delivery.since_s = "", None
            return
        offset_s = unix_s - self._clock.now_s()
        if self._state is None:
            note = (await self._cluster.read_notes()).get(NOTE, "")
            self._state, self._next_s = told.decoded(note, offset_s), float("-inf")
        begun_s = self._clock.now_s()
        status, now_s = await look(), self._clock.now_s()
        self._took_s = now_s - begun_s
        self._state, message = told.step(
            self._state,
            status.problems,
            now_s,
            self._settings,
            self._name,
            lambda kind: can_end(kind, status),
        )
        if message is not None and now_s >= self._next_s:
            await self._send(message, now_s)
            self._state, self._is_kept = self._state.sent(message, now_s), False
        if not self._is_kept:
            await self._cluster.write_note(NOTE, told.encoded(self._state, offset_s))
            self._is_kept = True

    async def _send(self, message: told.Message, now_s: float) -> None:
        """Raises NotSentError."""
        try:
            # No longer than this controller surely leads.
            limit_s = min(_TIMEOUT_S, self._leadership.left_s())
            await self._receiver.send(message, limit_s)
        except NotSentError as error:
            self._failed += 1
            self._next_s = now_s + min(LOOK_S * 2 ** min(self._failed, 10), _RAREST_S)
            if not self.delivery.problem:
                self.delivery.since_s = now_s
            self.delivery.problem = str(error)
            raise
        self._failed = 0
        self.delivery.problem, self.delivery.since_s = "", now_s
