"""What is still to be said on pods. Whoever waits for a node must not wait for words on others,
so events are written in the gaps; and as a cluster may have no gap for long, after a while all
the same."""

from collections import deque

from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import PodEvent

LONGEST_HELD_S = 5.0
_MOST = 10_000
_EVENT_LENGTH = 1024  # what the API server takes


class EventQueue:
    """Events in the order in which they came up. Past 10,000 the oldest are left out: what is
    to be said again, such as why a pod is still pending, comes up again."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, Pod, PodEvent]] = deque(maxlen=_MOST)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, pod: Pod, event: PodEvent, now_s: float) -> None:
        """There is something to say on a pod."""
        short = PodEvent(event.type, event.reason, event.message[:_EVENT_LENGTH])
        self._waiting.append((now_s, pod, short))

    def is_overdue(self, now_s: float) -> bool:
        """Whether the first one has waited long enough."""
        return bool(self._waiting) and now_s - self._waiting[0][0] >= LONGEST_HELD_S

    def pop(self) -> tuple[Pod, PodEvent]:
        """The first one. Raises IndexError when there is none."""
        _, pod, event = self._waiting.popleft()
        return pod, event
