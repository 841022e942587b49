"""A controller of another release than the agent: an older one lacks fields, a newer one has
more."""

from pathlib import Path

import pytest
from leadline_agent.lease import decode_lease
from leadline_wire import codec, topics
from leadline_wire.topics import Kind
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.proto.other_wires import first, from_later
from tests.support.agents import agent_config, listening, running_agent
from tests.support.mosquitto import mosquitto
from tests.support.ports import wait_until
from tests.support.wire_messages import MESSAGES

TOPIC = "leadline/v1/default/pi-1/lease"
PEER = pb.Peer(node="pi-2", address="127.0.0.1")
PING = pb.Lease(node="pi-1", ping=pb.PingLease(peers=[PEER], interval_s=1, count=3, ttl_s=60))
BANDWIDTH = pb.Lease(
    node="pi-1",
    bandwidth=pb.BandwidthLease(
        lease_id="L1",
        role=pb.BandwidthLease.CLIENT,
        peer=PEER,
        port=5201,
        duration_ms=2000,
        max_bytes=1 << 20,
        ttl_ms=1500,
    ),
)
# A kind of work that this agent does not know, in field 15 of the lease.
LATER_WORK = pb.Lease(node="pi-1").SerializeToString() + b"\x7a\x02\x08\x01"
both_leases = pytest.mark.parametrize("lease", [PING, BANDWIDTH], ids=["ping", "bandwidth"])


@both_leases
def test_a_lease_of_another_release_is_the_same_lease(lease: pb.Lease) -> None:
    def read(payload: bytes) -> object:
        return decode_lease(TOPIC, payload, topics.SCHEMA, received_s=10.0)

    expected = read(codec.encode(lease))
    assert read(from_later(lease)) == expected
    assert read(first(lease).SerializeToString()) == expected


@both_leases
def test_the_first_agents_read_all_of_a_lease(lease: pb.Lease) -> None:
    assert first(lease).SerializeToString() == codec.encode(lease)


# They do not subscribe to traffic.
@pytest.mark.parametrize(
    "kind", [kind for kind in MESSAGES if kind not in (Kind.LEASE, Kind.TRAFFIC)]
)
def test_the_first_controllers_read_all_that_they_know_of_a_message(kind: Kind) -> None:
    message = MESSAGES[kind]
    read = first(message)
    for field, value in read.ListFields():
        ours = getattr(message, field.name)
        if field.message_type is None:
            assert ours == value
        elif not field.is_repeated:
            assert first(ours) == value
    added = {field.name for field, _ in message.ListFields()} - {
        field.name for field, _ in read.ListFields()
    }
    assert added <= {"measured_us", "hindrances"}


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(LATER_WORK, id="work"),
        pytest.param(
            codec.encode(pb.Lease(node="pi-1", bandwidth=pb.BandwidthLease(role=9))),  # type: ignore[arg-type]  # of a later release
            id="role",
        ),
    ],
)
def test_work_that_this_agent_does_not_know_is_refused(payload: bytes) -> None:
    with pytest.raises(codec.MessageError, match="names no work"):
        decode_lease(TOPIC, payload, topics.SCHEMA, received_s=0.0)


@pytest.mark.broker
def test_an_agent_that_is_asked_for_later_work_goes_on_with_what_it_knows(tmp_path: Path) -> None:
    with (
        mosquitto() as broker,
        listening(broker.port, broker.host) as listener,
        running_agent(agent_config(tmp_path, broker.port)) as agent,
    ):
        listener.wait_for(Kind.BIRTH)
        listener.lease(pb.Lease.FromString(LATER_WORK))
        wait_until(lambda: "lease: refused" in agent.log, "the agent refuses it")
        listener.lease(pb.Lease.FromString(from_later(PING)))
        (round_,) = listener.wait_for(Kind.RTT)[:1]
        assert round_.peers
        assert agent.log.count("lease: refused") == 1
        assert "Traceback" not in agent.log
