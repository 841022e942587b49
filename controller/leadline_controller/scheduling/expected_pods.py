"""Pods that are expected on Leadline's choice of node, until their real node is known.

kube-scheduler does not tell an extender which node it took, and goes on to the next pod before it
has bound the last one. Only a call to bind or the watch shows the node, some milliseconds later,
or seconds later when there are many bindings.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.model import Pod


@dataclass(frozen=True, slots=True)
class _Expectation:
    """The node, what the pod is charged there, and until when (loop time) another pod waits for
    the real node."""

    node: str
    charge: Mapping[str, int] | None
    uncertain_until_s: float
    expiry: asyncio.TimerHandle


class ExpectedPods:
    """Pods assumed on a node. expected_s: for how long at most; uncertain_s: for how long other
    pods wait for the real node of one that may be elsewhere."""

    def __init__(self, state: ClusterState, expected_s: float, uncertain_s: float) -> None:
        self._state = state
        self._expected_s = expected_s
        self._uncertain_s = uncertain_s
        self._pods: dict[str, _Expectation] = {}
        self._changed = asyncio.Event()

    def expect(
        self, pod: Pod, node: str, charge: Mapping[str, int] | None = None, *, certain: bool
    ) -> None:
        """Assume a pod that the watch shows on this node. certain: it can be on no other."""
        if self._state.pod(pod.uid) is None:
            return
        self._state.assume(pod, node, charge=charge)
        loop = asyncio.get_running_loop()
        uncertain_until_s = 0.0 if certain else loop.time() + self._uncertain_s
        expiry = loop.call_later(self._expected_s, self.withdraw, pod.uid)
        self._pods[pod.uid] = _Expectation(node, charge, uncertain_until_s, expiry)

    def stop(self, uid: str) -> bool:
        """Stop expecting the pod, because its node is known. Returns whether it was expected."""
        self._changed.set()
        found = self._pods.pop(uid, None)
        if found is not None:
            found.expiry.cancel()
        return found is not None

    def withdraw(self, uid: str) -> None:
        """Stop expecting the pod, and forget its node unless the watch shows it there."""
        if self.stop(uid) and self._state.is_assumed(uid):
            pod = self._state.pod(uid)
            assert pod is not None  # noqa: S101  # only known pods are assumed
            self._state.forget(pod)

    def withdraw_all(self) -> None:
        """Withdraw every pod."""
        for uid in list(self._pods):
            self.withdraw(uid)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Count only pods that are bound or being bound: an expected pod must not take a place
        from a binding."""
        lifted = [
            (pod, each)
            for uid, each in self._pods.items()
            if self._state.is_assumed(uid) and (pod := self._state.pod(uid)) is not None
        ]
        for pod, _ in lifted:
            self._state.forget(pod)
        try:
            yield
        finally:
            for pod, each in lifted:
                self._state.assume(pod, each.node, charge=each.charge)

    def uncertain(self, except_uid: str) -> list[tuple[Pod, float]]:
        """The other pods that may be elsewhere, each with the loop time until which it is worth
        waiting for its real node."""
        now_s = asyncio.get_running_loop().time()
        return [
            (pod, each.uncertain_until_s)
            for uid, each in self._pods.items()
            if uid != except_uid
            and each.uncertain_until_s > now_s
            and (pod := self._state.pod(uid))
        ]

    async def wait_for_change(self, until_s: float) -> None:
        """Wait until something changes about any pod, until that loop time at most."""
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                await self._changed.wait()

    def notify(self) -> None:
        """The watch showed a change."""
        self._changed.set()
