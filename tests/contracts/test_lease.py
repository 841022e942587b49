"""The contract of a Lease, for each place that can keep one.

The real API server sets the standard; the Lease in memory must answer the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress

import pytest
from leadline_controller.framework.ports import LeaseChangedError, LeaseStore
from leadline_controller.kube.cluster import KubeCluster

from tests.contracts.harnesses import PATIENCE_S
from tests.kube.api import Api, ApiError
from tests.kube.control_plane import ControlPlane
from tests.support.memory_lease import MemoryLease

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/leadline-controller"


@pytest.fixture(
    params=["sim", pytest.param("kube", marks=[pytest.mark.cluster, pytest.mark.smoke])]
)
async def lease(request: pytest.FixtureRequest) -> AsyncIterator[LeaseStore]:
    if request.param == "sim":
        yield MemoryLease()
        return
    plane: ControlPlane = request.getfixturevalue("plane")
    async with KubeCluster.connect(plane.kubeconfig) as cluster:
        try:
            yield cluster.lease
        finally:
            with suppress(ApiError):
                Api(plane.kubeconfig).delete(LEASE)


async def test_there_is_no_lease_until_one_is_written(lease: LeaseStore) -> None:
    assert await lease.read() is None
    written = await lease.write("a", 10, None)
    assert (written.holder, written.duration_s, written.transitions) == ("a", 10, 0)
    assert await lease.read() == written


async def test_a_renewal_changes_when_it_was_renewed_and_nothing_else(lease: LeaseStore) -> None:
    first = await lease.write("a", 10, None)
    second = await lease.write("a", 10, first)
    assert (second.holder, second.acquired, second.transitions) == ("a", first.acquired, 0)
    assert second.renewed != first.renewed
    assert second.version != first.version


async def test_only_what_was_read_is_replaced(lease: LeaseStore) -> None:
    first = await lease.write("a", 10, None)
    second = await lease.write("a", 10, first)
    for stale in (first, None):
        with pytest.raises(LeaseChangedError, match="409"):
            await lease.write("b", 10, stale)
    assert await lease.read() == second


async def test_a_new_holder_counts_as_a_transition(lease: LeaseStore) -> None:
    first = await lease.write("a", 10, None)
    taken = await lease.write("b", 20, first)
    assert (taken.holder, taken.duration_s, taken.transitions) == ("b", 20, 1)
    assert taken.acquired != first.acquired


async def test_a_follower_sees_who_holds_the_lease(lease: LeaseStore) -> None:
    first = await lease.write("a", 10, None)
    async with aclosing(lease.follow()) as holders, asyncio.timeout(PATIENCE_S):
        assert await anext(holders) == "a"
        second = await lease.write("a", 10, first)
        await lease.write("b", 10, second)
        assert [await anext(holders), await anext(holders)] == ["a", "b"]


async def test_a_released_lease_has_no_holder(lease: LeaseStore) -> None:
    first = await lease.write("a", 10, None)
    released = await lease.write("", 1, first)
    assert (released.holder, released.transitions) == ("", 0)
    taken = await lease.write("b", 10, await lease.read())
    assert (taken.holder, taken.transitions) == ("b", 1)
