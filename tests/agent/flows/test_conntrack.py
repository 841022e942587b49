"""What the kernel says of connections is read, and any bytes leave the reader standing."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_flows.conntrack import (
    COUNTERS,
    Connection,
    Ends,
    attributes,
    connection,
    ends,
    messages,
)

from tests.support.conntrack_messages import attribute, message

POD, SERVICE, SHOP = "10.42.1.5", "10.43.0.9", "10.42.2.7"


def packed(text: str) -> bytes:
    return ip_address(text).packed


def read(data: bytes) -> list[Connection | None]:
    return [connection(data, start, end) for _, _, start, end in messages(data)]


def test_a_connection_through_a_service_has_both_directions_and_its_counters() -> None:
    data = message((POD, SERVICE, 40_000, 80), (SHOP, POD, 8080, 40_000), (9, 1_000, 7, 90_000))
    (found,) = read(data)
    assert found is not None
    assert found.counters is not None
    assert COUNTERS.unpack(found.counters) == (9, 1_000, 7, 90_000)
    assert ends(found.original) == Ends(6, packed(POD), packed(SERVICE), 40_000, 80)
    assert ends(found.reply) == Ends(6, packed(SHOP), packed(POD), 8080, 40_000)


def test_a_connection_of_ipv6_and_one_without_counters_are_read() -> None:
    one, two = "fd00::1", "fd00::2"
    data = message((one, two, 4, 5), (two, one, 5, 4), counts=None)
    (found,) = read(data)
    assert found is not None
    assert ends(found.original) == Ends(6, packed(one), packed(two), 4, 5)
    assert found.counters is None


def test_connections_of_the_same_ends_differ_by_their_number() -> None:
    ends = (POD, SHOP, 1, 2), (SHOP, POD, 2, 1)
    one, other = read(message(*ends, number=1) + message(*ends, number=2))
    assert one is not None
    assert other is not None
    assert one.key != other.key
    assert one[1:] == other[1:]


@pytest.mark.parametrize("gone", range(1, 40, 3))
def test_a_message_that_is_cut_off_ends_the_reading(gone: int) -> None:
    whole = message((POD, SHOP, 1, 2), (SHOP, POD, 2, 1))
    found = read(whole + whole[:-gone])
    assert found == read(whole)


def test_ends_without_both_addresses_are_none() -> None:
    data = message((POD, SHOP, 1, 2), (SHOP, POD, 2, 1))
    (found,) = read(data.replace(attribute(1, packed(POD)), attribute(77, packed(POD)), 1))
    assert found is not None
    assert ends(found.original) is None


def test_a_message_without_ends_is_no_connection() -> None:
    assert connection(bytes(4) + attribute(12, bytes(4)), 0, 12) is None


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_left_out(data: bytes) -> None:
    for _, start, end in attributes(data, 0, len(data)):
        assert 0 < start <= end <= len(data)
    for found in read(data):
        assert found is None or found.counters is None or len(found.counters) == COUNTERS.size
    sides = ends(data)
    assert sides is None or len(sides.source) in (4, 16)


@given(st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 255)), max_size=6))
def test_a_damaged_message_is_read_or_left_out(damage: list[tuple[int, int]]) -> None:
    data = bytearray(message((POD, SERVICE, 40_000, 80), (SHOP, POD, 8080, 40_000)))
    for at, value in damage:
        data[at % len(data)] = value
    for found in filter(None, read(bytes(data))):
        for sides in filter(None, map(ends, (found.original, found.reply))):
            assert len(sides.source) == len(sides.destination) in (4, 16)
            assert 0 <= sides.port < 1 << 16
