"""When a candidate leads and may acquire the Lease, by its own clock."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.ports import LeaseRecord
from leadline_controller.leaderelection.elector import SOLE_LEADER, LeaseTiming, ObservedLease

TIMING = LeaseTiming(duration_s=10, renew_deadline_s=7, retry_s=2, margin_s=1)


def lease(holder: str, renewed: str = "1", duration_s: int = 10) -> LeaseRecord:
    return LeaseRecord(holder, duration_s, "0", renewed, 0, f"version-{renewed}")


def me() -> ObservedLease:
    return ObservedLease("me", TIMING)


def test_a_new_candidate_may_acquire_and_does_not_lead() -> None:
    observed = me()
    assert (observed.may_acquire(0), observed.leads(0), observed.left_s(0) > 0) == (
        True,
        False,
        False,
    )


def test_a_leader_counts_from_when_it_sent_the_renewal() -> None:
    observed = me()
    observed.renewed(lease("me"), sent_s=100)
    assert observed.leads(106.9)
    assert not observed.leads(107)
    assert observed.left_s(100) == 9
    assert observed.left_s(109) == 0


def test_a_follower_counts_from_when_it_saw_the_lease_change() -> None:
    observed = me()
    observed.observe(lease("other", "1"), 50)
    observed.observe(lease("other", "1"), 58)
    assert not observed.may_acquire(59.9)
    assert observed.may_acquire(60)
    observed.observe(lease("other", "2"), 60)
    assert not observed.may_acquire(69.9)
    assert not observed.leads(60)


def test_the_holder_sets_the_duration_of_its_lease() -> None:
    observed = me()
    observed.observe(lease("other", duration_s=30), 0)
    assert not observed.may_acquire(29)
    assert observed.may_acquire(30)


def test_a_label_on_the_lease_is_not_a_renewal() -> None:
    observed = me()
    observed.observe(lease("other"), 0)
    observed.observe(replace(lease("other"), version="another"), 9)
    assert observed.may_acquire(10)
    assert observed.record is not None
    assert observed.record.version == "another"


@pytest.mark.parametrize("record", [lease("other", "2"), lease("", "2"), None])
def test_a_leader_that_sees_another_holder_no_longer_leads(record: LeaseRecord | None) -> None:
    observed = me()
    observed.renewed(lease("me"), sent_s=0)
    assert observed.leads(1)
    observed.observe(record, 1)
    assert not observed.leads(1)
    assert observed.left_s(1) <= 0


def test_reading_its_own_identity_neither_starts_nor_ends_leadership() -> None:
    """The answer to its write was lost, so the time of that renewal is unknown."""
    observed = me()
    observed.observe(lease("me"), 5)
    assert not observed.leads(5)
    assert observed.may_acquire(5)
    observed.renewed(lease("me", "2"), sent_s=6)
    observed.observe(lease("me", "2"), 8)
    assert observed.leads(8)


def test_a_released_or_missing_lease_is_free_at_once() -> None:
    for record in (lease("", "3", duration_s=1), None):
        observed = me()
        observed.observe(lease("other"), 0)
        observed.observe(record, 1)
        assert observed.may_acquire(1)


def test_pauses_between_attempts() -> None:
    leader, follower = me(), me()
    leader.renewed(lease("me"), sent_s=0)
    follower.observe(lease("other"), 0)
    assert leader.pause_s(0, jitter=1) == 2
    assert follower.pause_s(0, jitter=0) == 2
    assert follower.pause_s(0, jitter=1) == 2.4
    assert follower.pause_s(9.5, jitter=1) == 0.5  # tries again when the Lease expires
    assert follower.pause_s(10, jitter=0) == 2  # and after the usual pause if that failed


@pytest.mark.parametrize(
    "wrong", [{"retry_s": 0}, {"retry_s": 7}, {"renew_deadline_s": 9}, {"margin_s": 3}]
)
def test_times_that_allow_two_leaders_are_rejected(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="retry < renew deadline"):
        replace(TIMING, **wrong)  # type: ignore[arg-type]  # all are numbers


@given(
    clocks=st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)),
    speed=st.floats(0.91, 1.0),
    sent_s=st.floats(0, 1000),
    answer_s=st.floats(0, 30),
    seen_after_s=st.floats(0, 30),
)
def test_a_leaders_actions_end_before_another_may_start(
    clocks: tuple[float, float], speed: float, sent_s: float, answer_s: float, seen_after_s: float
) -> None:
    """In true time, however far apart the clocks are, also if the leader's is a tenth slow."""
    leaders_s, followers_s = clocks
    leader, follower = ObservedLease("a", TIMING), ObservedLease("b", TIMING)
    leader.renewed(lease("a"), sent_s * speed + leaders_s)
    # The server wrote it after the request was sent, and the follower saw it even later.
    seen_s = sent_s + seen_after_s
    follower.observe(lease("a"), seen_s + followers_s)
    began_s = sent_s + answer_s
    left_s = leader.left_s(began_s * speed + leaders_s)
    if leader.leads(began_s * speed + leaders_s):
        assert left_s > 0
        assert not follower.may_acquire(began_s + left_s / speed + followers_s - 1e-6)


async def test_a_sole_leader_always_leads() -> None:
    assert SOLE_LEADER.leads()
    assert SOLE_LEADER.left_s() == float("inf")
    await SOLE_LEADER.wait()
