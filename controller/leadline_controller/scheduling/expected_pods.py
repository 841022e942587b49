"""Where pods are counted that kube-scheduler was advised about, until it is known where they went.

kube-scheduler tells nobody which node it took, and goes on to the next pod before it has bound
the last one. Only a call to bind or the watch tells, some milliseconds later, or seconds where it
has many bindings to make.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.model import Pod


@dataclass(frozen=True, slots=True)
class _Expectation:
    """The node, and until when (loop time) others wait for what really came of it."""

    node: str
    waited_for_s: float
    expiry: asyncio.TimerHandle


class ExpectedPods:
    """Pods that are expected on a node. kept_s: for how long at most; unsure_s: for how long
    others wait for news of one that may as well have gone elsewhere."""

    def __init__(self, state: ClusterState, kept_s: float, unsure_s: float) -> None:
        self._state = state
        self._kept_s = kept_s
        self._unsure_s = unsure_s
        self._pods: dict[str, _Expectation] = {}
        self._news = asyncio.Event()

    def put(self, pod: Pod, node: str, *, sure: bool) -> None:
        """Count a pod that our watch knows on this node. sure: it can be on no other."""
        if self._state.pod(pod.uid) is None:
            return
        self._state.assume(pod, node)
        loop = asyncio.get_running_loop()
        waited_for_s = 0.0 if sure else loop.time() + self._unsure_s
        expiry = loop.call_later(self._kept_s, self.withdraw, pod.uid)
        self._pods[pod.uid] = _Expectation(node, waited_for_s, expiry)

    def drop(self, uid: str) -> bool:
        """Something is known of the pod: expect nothing more. Whether anything was."""
        self._news.set()
        found = self._pods.pop(uid, None)
        if found is not None:
            found.expiry.cancel()
        return found is not None

    def withdraw(self, uid: str) -> None:
        """The pod is not on the node where it was expected, unless the watch says so."""
        if self.drop(uid) and self._state.is_assumed(uid):
            pod = self._state.pod(uid)
            assert pod is not None  # noqa: S101  # only known pods are assumed
            self._state.forget(pod)

    def withdraw_all(self) -> None:
        """Count none of them any more."""
        for uid in list(self._pods):
            self.withdraw(uid)

    @contextmanager
    def none(self) -> Iterator[None]:
        """Count only what is bound or being bound: an expectation must refuse nobody a place."""
        lifted = [
            (pod, each.node)
            for uid, each in self._pods.items()
            if self._state.is_assumed(uid) and (pod := self._state.pod(uid)) is not None
        ]
        for pod, _ in lifted:
            self._state.forget(pod)
        try:
            yield
        finally:
            for pod, node in lifted:
                self._state.assume(pod, node)

    def unsure(self, but: str) -> list[tuple[Pod, float]]:
        """The pods, `but` that one, that may as well be elsewhere, and until when (loop time)
        it is worth waiting for news of each."""
        now_s = asyncio.get_running_loop().time()
        return [
            (pod, each.waited_for_s)
            for uid, each in self._pods.items()
            if uid != but and each.waited_for_s > now_s and (pod := self._state.pod(uid))
        ]

    async def wait_for_change(self, until_s: float) -> None:
        """Wait for news of any pod, until that loop time at most."""
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                await self._news.wait()

    def heard(self) -> None:
        """The watch told of something."""
        self._news.set()
