"""The latest decisions in memory, so that every placement can be explained.

The log keeps the newest decision about each of a limited number of pods. It passes each change to
a recorder, which keeps decisions for longer.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from leadline_controller.framework.cycle import Decision
from leadline_controller.framework.model import Pod
from leadline_controller.framework.options import OptionValue
from leadline_controller.framework.ports import ClusterChange, PodChanged, PodDeleted, Relisted
from leadline_controller.history import times
from leadline_controller.history.record import Change, DecisionRecord, OutcomeChange, bounded_text
from leadline_controller.history.times import Moment

BOUND = "bound"
PENDING = "pending"
GONE = "gone"  # before it was bound
DELETED = "deleted"  # after that
_MAX_PENDING = 4096


class DecisionLog:
    """The decisions about the last `limit` pods. Only the last `detailed` of them keep the view
    that they were made from, which takes megabytes in a large cluster. A pending decision stays
    longer, because the sink must still receive its outcome. sink: receives every change; it must
    not block, as the scheduler calls it. now: the clock that dates records."""

    def __init__(
        self,
        limit: int = 256,
        detailed: int = 32,
        sink: Callable[[Change], None] | None = None,
        now: Callable[[], Moment] = times.now,
    ) -> None:
        self.now = now
        self._limit = limit
        self._detailed = detailed
        self._sink = sink
        self._records: OrderedDict[str, DecisionRecord] = OrderedDict()
        self._pending: OrderedDict[str, DecisionRecord] = OrderedDict()
        self._with_views: OrderedDict[str, None] = OrderedDict()
        self._number = 0

    def restore(self, records: Iterable[DecisionRecord]) -> None:
        """Add the records of an earlier run, oldest first."""
        for record in records:
            self._records[record.pod] = record._replace(number=self._next())
        self._evict()

    def add(
        self, decision: Decision, at_s: float, outcome: str, options: Mapping[str, OptionValue]
    ) -> None:
        """Record a decision made at `at_s` on the clock of its view, in place of any earlier one
        about the pod."""
        record = DecisionRecord.of(decision, at_s, outcome, options, self.now(), self._next())
        for records in (self._records, self._pending):
            records.pop(record.pod, None)
        self._records[record.pod] = record
        self._evict()
        self._with_views.pop(record.pod, None)
        self._with_views[record.pod] = None
        if len(self._with_views) > self._detailed:
            oldest, _ = self._with_views.popitem(last=False)
            self._records[oldest] = self._records[oldest]._replace(decision=None)
        if self._sink is not None:
            self._sink(record)

    def set_outcome(self, pod: str, outcome: str) -> None:
        """Set the outcome of the decision about the pod with this key, if the log has one."""
        record, outcome = self.get(pod), bounded_text(outcome)
        if record is None or record.outcome == outcome:
            return
        record = record._replace(outcome=outcome, number=self._next())
        self._records[record.pod] = record
        if self._pending.pop(record.pod, None) is not None:
            self._records.move_to_end(record.pod, last=False)  # the first to be evicted
        if self._sink is not None:
            self._sink(OutcomeChange(record.pod, record.uid, outcome))

    def observe(self, change: ClusterChange) -> None:
        """Set the outcomes that this change of the cluster shows. The watch overrides what the
        answer to a binding said, and also settles the decisions of earlier runs."""
        match change:
            case Relisted(pods=pods):
                shown = {bounded_text(pod.uid): pod for pod in pods}
                for record in self.all():
                    self._observe(record, shown.get(record.uid))
            case PodChanged(pod) | PodDeleted(pod):
                found = self.get(pod.key)
                if found is not None and found.uid == bounded_text(pod.uid):
                    self._observe(found, pod if isinstance(change, PodChanged) else None)
            case _:
                pass

    def get(self, pod: str) -> DecisionRecord | None:
        """The last decision about the pod with this key."""
        pod = bounded_text(pod)
        return self._records.get(pod) or self._pending.get(pod)

    def all(self) -> Iterator[DecisionRecord]:
        """From the oldest decision to the newest."""
        return iter(tuple(chain(self._pending.values(), self._records.values())))

    def _observe(self, record: DecisionRecord, pod: Pod | None) -> None:
        """pod: as the watch shows it; None when it was deleted."""
        if pod is not None and pod.node_name is not None and pod.node_name == record.node:
            self.set_outcome(record.pod, BOUND)
        elif record.outcome == PENDING and pod is None:
            self.set_outcome(record.pod, GONE)
        elif record.outcome == BOUND and pod is None:
            self.set_outcome(record.pod, DELETED)
        elif record.outcome == PENDING and pod is not None and pod.node_name is not None:
            self.set_outcome(record.pod, f"failed: the pod is on {pod.node_name}")

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _evict(self) -> None:
        while len(self._records) > self._limit:
            pod, record = self._records.popitem(last=False)
            self._with_views.pop(pod, None)
            if record.outcome == PENDING:
                self._pending[pod] = record._replace(decision=None)
        while len(self._pending) > _MAX_PENDING:
            self._pending.popitem(last=False)
