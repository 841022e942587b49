"""The nodes for which pending pods are nominated, because room was made for them there.

They are in the pods' status, so whoever leads next knows them. What this controller has just
nominated counts at once, until the watch shows it.
"""

from collections.abc import Iterable, Iterator

from leadline_controller.framework.model import Pod


class Nominations:
    """Nominated nodes by the uid of the pending pod."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}
        self._made: dict[str, str | None] = {}  # and not shown yet; None takes one back

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """The uids of nominated pods, each with the node."""
        for uid in dict.fromkeys((*self._shown, *self._made)):
            if (node := self.of(uid)) is not None:
                yield uid, node

    def of(self, uid: str) -> str | None:
        """The node for which this pod is nominated."""
        return self._made[uid] if uid in self._made else self._shown.get(uid)

    def make(self, uid: str, node: str | None) -> None:
        """Nominate a pod for a node; None for no node any more."""
        if self._shown.get(uid) == node:
            self._made.pop(uid, None)
        else:
            self._made[uid] = node

    def withdraw(self, uid: str) -> None:
        """What was made is not to be: what the watch shows counts again."""
        self._made.pop(uid, None)

    def observe_all(self, pods: Iterable[Pod]) -> None:
        """The watch shows these pods and no others."""
        seen = list(pods)
        for uid in {*self._shown, *self._made} - {pod.uid for pod in seen}:
            self.forget(uid)
        for pod in seen:
            self.observe(pod)

    def observe(self, pod: Pod) -> None:
        """The watch shows this pod."""
        if not pod.is_pending:
            self.forget(pod.uid)
            return
        if pod.uid in self._made and self._made[pod.uid] == pod.nominated_node:
            del self._made[pod.uid]
        if pod.nominated_node is None:
            self._shown.pop(pod.uid, None)
        else:
            self._shown[pod.uid] = pod.nominated_node

    def forget(self, uid: str) -> None:
        """The pod with this uid is gone, or on a node."""
        self._shown.pop(uid, None)
        self._made.pop(uid, None)
