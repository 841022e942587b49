"""Room that is kept on a node for the pod that replaces a moved one.

Between the eviction of a pod and the binding of its replacement, other pods would take the room
for which the move was planned. A reservation counts as a pod on its node until its pod is placed.
"""

from collections.abc import Container
from dataclasses import dataclass, replace

from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView


@dataclass(frozen=True, slots=True)
class Reservation:
    """Room for one pod on a node."""

    pod: Pod  # the moved pod, or the pending pod itself if `source` is None
    node: str
    source: str | None  # the node that the moved pod leaves
    why: str = ""  # one sentence about the move

    def is_for(self, pod: Pod) -> bool:
        """Whether the room is for this pending pod. The pods of a ReplicaSet are alike, so any of
        them may take it; a StatefulSet makes one of the same name."""
        if self.source is None:
            return pod.uid == self.pod.uid
        owner = self.pod.owner
        if owner is None or pod.owner is None or pod.owner.uid != owner.uid:
            return False
        return pod.uid != self.pod.uid and (
            owner.kind != "StatefulSet" or pod.name == self.pod.name
        )


class Reservations:
    """The reservations by the uid of their pod, and the pods that took their room."""

    def __init__(self) -> None:
        self._open: dict[str, Reservation] = {}
        self._taken: dict[str, str] = {}  # uid of the moved pod -> of the one in its room

    def put(self, reservation: Reservation) -> None:
        """Keep the room until `remove`."""
        self._open[reservation.pod.uid] = reservation

    def remove(self, uid: str) -> None:
        """Free the room kept for the pod with this uid; no error if there is none."""
        self._open.pop(uid, None)
        self._taken.pop(uid, None)

    def remove_own(self, uid: str) -> bool:
        """Free the room kept for a pending pod, which is placed now, or gone. Returns whether
        there was any."""
        if (own := self._open.get(uid)) is None or own.source is not None:
            return False
        self.remove(uid)
        return True

    def keep_own(self, uids: Container[str]) -> None:
        """Free the room kept for pending pods other than these."""
        for uid in [uid for uid in self._open if uid not in uids]:
            self.remove_own(uid)

    def taken_by(self, uid: str) -> str | None:
        """The uid of the pod that was placed in the room kept for `uid`."""
        return self._taken.get(uid)

    def is_moving(self, uid: str) -> bool:
        """Whether room is kept for what replaces the pod with this uid."""
        return (found := self._open.get(uid)) is not None and found.source is not None

    def replaced_by(self, uid: str) -> Pod | None:
        """The moved pod, as it was before, in whose room the pod with this uid was placed."""
        moved = (moved for moved, taker in self._taken.items() if taker == uid)
        return next((self._open[each].pod for each in moved if self.is_moving(each)), None)

    def of(self, pod: Pod) -> Reservation | None:
        """The room that this pending pod may take."""
        return next((each for each in self.free() if each.is_for(pod)), None)

    def placed(self, pod: Pod) -> None:
        """A pod was placed, here or elsewhere: its reservation no longer counts."""
        found = self.of(pod)
        if found is not None and pod.uid not in self._taken.values():
            self._taken[found.pod.uid] = pod.uid

    def withdrawn(self, uid: str) -> None:
        """The pod with this uid is no longer placed: the room is kept again."""
        self._taken = {moved: taker for moved, taker in self._taken.items() if taker != uid}

    def apply(self, view: ClusterView, pod: Pod | None) -> ClusterView:
        """The view with the kept room counted, except what `pod` may take: what is kept for it or
        for its own replacement, and for pods of lower priority."""
        own = None if pod is None else self._open.get(pod.uid) or self.of(pod)
        for each in self.free():
            at = view.table.index.get(each.node)
            if pod is not None and each.pod.priority < pod.priority:
                continue
            if at is not None and each is not own:
                kept = replace(each.pod, uid=f"reserved-{each.pod.uid}", claims=(), disks=())
                # Nothing was placed yet, and nothing is pulled yet.
                view = replace(
                    view.with_placement(kept, at),
                    placed_in_run=view.placed_in_run,
                    images=view.images,
                )
        return view

    def free(self) -> tuple[Reservation, ...]:
        """Those in whose room no pod was placed."""
        return tuple(each for uid, each in self._open.items() if uid not in self._taken)
