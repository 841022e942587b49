"""Each byte of a connection counts once, for the ends that it really has."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_flows.conntrack import COUNTERS, Connection
from leadline_flows.totals import MOST_FLOWS, Flow, Pair, Totals, pair_of

from tests.support.conntrack_messages import direction

POD, SERVICE, SHOP, BOARD = "10.42.1.5", "10.43.0.9", "10.42.2.7", "192.168.1.4"


def packed(text: str) -> bytes:
    return ip_address(text).packed


def made(
    counters: tuple[int, int, int, int] | None,
    source: str = POD,
    destination: str = SHOP,
    port: int = 80,
    reply_source: str = "",
    reply_destination: str = "",
    reply_port: int = 0,
    protocol: int = 6,
    key: int = 1,
) -> Connection:
    ports = (40_000, reply_port or port)
    answers = direction(
        2, reply_source or destination, reply_destination or source, ports[::-1], protocol
    )
    return Connection(
        key,
        direction(1, source, destination, (ports[0], port), protocol)[4:],
        answers[4:],
        None if counters is None else COUNTERS.pack(*counters),
    )


def carried(flow: Flow) -> tuple[int, int, int, int]:
    return flow.packets_sent, flow.bytes_sent, flow.packets_received, flow.bytes_received


def test_a_long_connection_counts_by_the_differences_between_dumps() -> None:
    totals = Totals()
    totals.begin([made((10, 1_000, 20, 2_000))])  # what was before does not count
    totals.see([made((13, 1_300, 21, 2_100))])
    (flow,) = totals.take().flows
    assert (carried(flow), flow.connections) == ((3, 300, 1, 100), 0)
    assert flow.pair == Pair(packed(POD), packed(SHOP), 80, None, False)
    totals.see([made((13, 1_300, 21, 2_100))])
    assert totals.take().flows == []


def test_a_short_connection_counts_by_its_end() -> None:
    totals = Totals()
    totals.begin([])
    totals.end([made((5, 400, 4, 300))])
    totals.see([])
    (flow,) = totals.take().flows
    assert (carried(flow), flow.connections) == ((5, 400, 4, 300), 1)


def test_what_ends_after_a_dump_counts_what_is_left() -> None:
    totals = Totals()
    totals.begin([])
    totals.see([made((5, 400, 4, 300))])
    assert totals.take().flows[0].connections == 1
    totals.see([])  # its end is in the socket, and not yet read
    totals.end([made((6, 450, 4, 300))])
    (flow,) = totals.take().flows
    assert (carried(flow), flow.connections) == ((1, 50, 0, 0), 0)


def test_an_end_that_the_table_still_has_counts_once() -> None:
    totals = Totals()
    totals.begin([])
    totals.end([made((5, 400, 4, 300))])
    totals.see([made((5, 400, 4, 300))])
    totals.see([])
    assert [carried(flow) for flow in totals.take().flows] == [(5, 400, 4, 300)]


def test_counters_that_shrank_are_those_of_a_new_connection() -> None:
    totals = Totals()
    totals.begin([made((50, 4_000, 40, 3_000))])
    totals.see([made((5, 400, 4, 300))])
    (flow,) = totals.take().flows
    assert (carried(flow), flow.connections) == ((5, 400, 4, 300), 1)


def test_a_service_is_counted_for_the_pod_that_answers() -> None:
    through = made(
        (1, 1, 1, 1), POD, SERVICE, 80, reply_source=SHOP, reply_destination=BOARD, reply_port=8080
    )
    assert pair_of(through) == Pair(packed(POD), packed(SHOP), 8080, packed(BOARD), True)
    only_the_port = made((1, 1, 1, 1), POD, SHOP, 80, reply_port=8080)
    assert pair_of(only_the_port) == Pair(packed(POD), packed(SHOP), 8080, None, True)


@pytest.mark.parametrize(
    "left_out",
    [
        made((1, 1, 1, 1), "127.0.0.1", "127.0.0.1"),
        made((1, 1, 1, 1), "::1", "::1"),
        made((1, 1, 1, 1), POD, POD),
        made((1, 1, 1, 1), POD, SERVICE, reply_source=POD),
        made((1, 1, 1, 1), BOARD, "224.0.0.251", 5353, protocol=17),
        made((1, 1, 1, 1), BOARD, "255.255.255.255", 67, protocol=17),
        made((1, 1, 1, 1), "fe80::1", "ff02::fb", 5353, protocol=17),
        made((1, 1, 1, 1), BOARD, "192.168.1.5", 8472, protocol=17),
        made((1, 1, 1, 1), BOARD, "192.168.1.5", 0, protocol=4),
    ],
)
def test_what_stays_on_a_host_goes_to_many_or_carries_others_is_left_out(
    left_out: Connection,
) -> None:
    totals = Totals()
    totals.begin([])
    totals.end([left_out])
    assert totals.take() == ([], 0)


def test_a_port_of_a_tunnel_is_one_of_udp_only() -> None:
    assert pair_of(made((1, 1, 1, 1), port=8472)) is not None


def test_the_largest_are_told_and_the_others_in_one_sum() -> None:
    totals = Totals()
    totals.begin([])
    totals.end([made((1, n, 1, n), port=n, key=n) for n in range(1, MOST_FLOWS + 4)])
    flows, omitted_bytes = totals.take()
    assert [flow.pair.port for flow in flows] == list(range(MOST_FLOWS + 3, 3, -1))
    assert omitted_bytes == 2 * (1 + 2 + 3)
    assert totals.take() == ([], 0)


def test_pairs_that_do_not_fit_are_in_the_sum() -> None:
    totals = Totals(most_pairs=2)
    totals.begin([])
    totals.end([made((1, n, 1, n), port=n, key=n) for n in (1, 2, 3)])
    flows, omitted_bytes = totals.take()
    assert [flow.pair.port for flow in flows] == [2, 1]
    assert omitted_bytes == 6


def test_connections_that_the_kernel_does_not_count_are_told_if_they_are_new() -> None:
    totals = Totals()
    totals.begin([made(None)])
    totals.see([made(None)])
    assert totals.uncounted == 0
    totals.see([made(None), made(None, key=2)])
    assert totals.uncounted == 1


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["open", "carry", "close", "dump", "read"]),
        st.integers(0, 5),
        st.integers(1, 10**6),
    ),
    max_size=60,
)


@given(STEPS, st.integers(0, 3))
def test_every_byte_counts_once_however_dumps_and_ends_come(
    steps: list[tuple[str, int, int]], most_connections: int
) -> None:
    """Connections open, carry and close at any time; ends wait in the socket until they are read,
    and fewer are remembered than there are."""
    totals = Totals(most_connections=most_connections)
    totals.begin([])
    alive: dict[int, tuple[int, int, int, int]] = {}
    waiting: list[Connection] = []
    opened, whole = 0, 0
    for what, which, amount in steps:
        keys = sorted(alive)
        if what == "open":
            opened += 1
            alive[opened] = (1, amount, 0, 0)
            whole += amount
        elif what == "dump":
            totals.end(waiting)  # as the helper reads before it dumps
            waiting = []
            totals.see([made(counters, key=key) for key, counters in alive.items()])
        elif what == "read":
            totals.end(waiting)
            waiting = []
        elif keys and what == "carry":
            key = keys[which % len(keys)]
            sent, size, received, back = alive[key]
            alive[key] = (sent, size, received + 1, back + amount)
            whole += amount
        elif keys and what == "close":
            key = keys[which % len(keys)]
            waiting.append(made(alive.pop(key), key=key))
    totals.end([*waiting, *(made(counters, key=key) for key, counters in alive.items())])
    flows = totals.take().flows
    assert sum(f.bytes_sent + f.bytes_received for f in flows) == whole
    assert sum(f.connections for f in flows) == opened
