"""Whose the boards' counts are, and what a board that lies can bring about."""

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.model import Pod
from leadline_controller.telemetry.traffic import CountedFlow
from leadline_controller.traffic.edges import HOUR_S, MINUTE_S, WINDOWS_S, TrafficEdge

from tests.controller.traffic.traffic_builder import UNIX_S, Cluster, flow, replica
from tests.support.examples import examples

WEB, DB, CACHE = replica("web", 1, 5), replica("db", 2, 6), replica("cache", 3, 7)
NAS, USER = "198.51.100.7", "198.51.100.8"


def trio() -> Cluster:
    """A pod on each of three boards."""
    return Cluster(3, [WEB, DB, CACHE])


def names(cluster: Cluster) -> set[tuple[str, str]]:
    return {ends[:2] for ends in cluster.edges()}


# Who it is.


def test_a_pod_with_the_address_of_its_node_counts_as_the_node() -> None:
    proxy = replica("proxy", 2, 9, ips=("192.0.2.2",))
    cluster = Cluster(2, [WEB, proxy])
    cluster.report("n1", flow(WEB.ip, "192.0.2.2"))
    (edge,) = cluster.edges().values()
    assert (edge.destination.name, edge.destination.node) == ("node/n2", "n2")
    assert edge.destination.workload is None


@pytest.mark.parametrize("last", [0, 1])
def test_the_first_addresses_of_a_nodes_network_are_its_own(last: int) -> None:
    cluster = trio()
    cluster.report("n2", flow(f"10.42.1.{last}", DB.ip))
    assert names(cluster) == {("node/n1", "shop/db")}


@pytest.mark.parametrize("address", ["10.42.1.77", "127.0.0.1", "224.0.0.1", "169.254.1.1", "::1"])
def test_an_address_of_nobody_counts_for_nobody(address: str) -> None:
    cluster = trio()
    cluster.report("n2", flow(address, DB.ip))
    assert names(cluster) == set()


def test_all_addresses_of_a_pod_and_a_node_are_its_own() -> None:
    web = replica("web", 1, 5, ips=("10.42.1.5", "fd00:1::5"))
    cluster = Cluster(2, [web, DB])
    node = cluster.nodes["n2"]
    cluster.nodes["n2"] = replace(node, addresses=(*node.addresses, "2001:db8::2"))
    cluster.update()
    cluster.report("n1", flow("fd00:1::5", "2001:db8::2"), flow("10.42.1.5", DB.ip))
    assert names(cluster) == {("shop/web", "node/n2"), ("shop/web", "shop/db")}
    del cluster.pods[web.uid]
    cluster.update()
    cluster.now_s += 300.0
    cluster.report("n2", flow("fd00:1::5", DB.ip))  # nobody's any more: outside
    assert ("fd00:1::5", "shop/db") in names(cluster)


def test_after_a_restart_of_its_board_a_pod_has_its_new_address() -> None:
    cluster = trio()
    moved = replace(WEB, ips=("10.42.1.66", "fd00:1::66"))
    cluster.pods[WEB.uid] = moved
    cluster.update()
    # Another pod has the old one.
    other = replica("other", 1, 5)
    cluster.pods[other.uid] = other
    cluster.update()
    cluster.now_s += 200.0
    cluster.report("n1", flow("fd00:1::66", DB.ip), flow(moved.ip, CACHE.ip), flow(other.ip, DB.ip))
    assert names(cluster) == {
        ("shop/web", "shop/db"),
        ("shop/web", "shop/cache"),
        ("shop/other", "shop/db"),
    }


def test_the_address_of_a_pod_that_ended_is_known_for_two_minutes() -> None:
    cluster = trio()
    del cluster.pods[WEB.uid]
    cluster.update()
    cluster.now_s += 50.0
    cluster.report("n2", flow(WEB.ip, DB.ip))
    assert names(cluster) == {("shop/web", "shop/db")}
    cluster = trio()
    del cluster.pods[WEB.uid]
    cluster.update()
    cluster.now_s += 125.0
    cluster.update()
    cluster.report("n2", flow(WEB.ip, DB.ip), s=300.0)
    assert names(cluster) == set()


def test_a_finished_pod_has_its_address_until_it_ended() -> None:
    ended = replace(WEB, finished=True, ended_s=UNIX_S + 900.0)
    cluster = trio()
    cluster.pods[WEB.uid] = ended
    cluster.now_s = 950.0
    cluster.report("n1", flow(WEB.ip, DB.ip))
    assert names(cluster) == {("shop/web", "shop/db")}
    cluster.now_s = 1010.0
    cluster.report("n1", flow(WEB.ip, CACHE.ip))
    assert names(cluster) == {("shop/web", "shop/db")}


@pytest.mark.parametrize(
    ("counted_s", "found"),
    [
        (990.0, {("shop/web", "shop/db")}),  # before the new pod was bound
        (1010.0, set()),  # in this minute both had it
        (1070.0, {("shop/new", "shop/db")}),
    ],
)
def test_a_recycled_address_does_not_give_the_new_pod_the_traffic_of_the_old_one(
    counted_s: float, found: set[tuple[str, str]]
) -> None:
    cluster = trio()
    del cluster.pods[WEB.uid]
    new = replica("new", 1, 5, bound_s=UNIX_S + 1000.0)
    cluster.now_s = 1000.0
    cluster.pods[new.uid] = new
    cluster.update()
    cluster.now_s = counted_s
    cluster.report("n2", flow(WEB.ip, DB.ip))
    cluster.now_s = 1070.0
    assert names(cluster) == found


# Where an address lies.


def test_an_address_lies_at_the_board_that_lets_it_in() -> None:
    cluster = trio()
    own = "192.0.2.3"
    cluster.report("n1", flow(USER, DB.ip, 300, translated=True))
    cluster.report("n3", flow(USER, DB.ip, 900, translated=True, translated_source=own))
    cluster.report("n2", flow(own, DB.ip, 900))
    cluster.update()
    assert cluster.graph.traffic(cluster.now_s).entries == {USER: "n3"}


def test_else_it_lies_at_the_board_whose_pods_talk_to_it_most() -> None:
    cluster = trio()
    cluster.report("n1", flow(WEB.ip, NAS, 900))
    cluster.report("n2", flow(DB.ip, NAS, 300))
    cluster.update()
    assert cluster.graph.traffic(cluster.now_s).entries == {NAS: "n1"}


def test_what_only_nodes_talk_to_is_left_out() -> None:
    cluster = trio()
    cluster.report("n1", flow("192.0.2.1", NAS), flow("192.0.2.1", "192.0.2.2", port=6443))
    assert cluster.edges() == {}


# Translated sources.


def test_a_masqueraded_pod_is_counted_once_under_its_own_name() -> None:
    """The other end sees the node."""
    cluster = trio()
    own = "10.42.1.0"  # flannel's
    cluster.report("n1", flow(WEB.ip, DB.ip, 600, translated_source=own))
    cluster.report("n2", flow(own, DB.ip, 600))
    (edge,) = cluster.edges().values()
    assert (edge.source.name, edge.one_sided) == ("shop/web", False)
    assert edge.rates[MINUTE_S].mbps == pytest.approx(80e-6)


def test_without_the_sources_report_the_node_is_all_that_is_known() -> None:
    cluster = trio()
    cluster.report("n2", flow("192.0.2.1", DB.ip, 600))
    (edge,) = cluster.edges().values()
    assert (edge.source.name, edge.one_sided) == ("node/n1", True)


def test_the_other_ends_count_is_shared_out_among_those_that_it_cannot_tell_apart() -> None:
    cluster = trio()
    own = "192.0.2.1"
    cluster.report(
        "n1",
        flow(WEB.ip, DB.ip, 3000, translated_source=own),
        flow(USER, DB.ip, 1000, translated=True, translated_source=own),
        flow(own, DB.ip, 2000),
    )
    cluster.report("n2", flow(own, DB.ip, 3000))
    shares = {source: edge.rates[MINUTE_S].mbps for (source, *_), edge in cluster.edges().items()}
    half = 0.5 * 8 / 60e6
    assert shares == pytest.approx(
        {"shop/web": 3000 * half, USER: 1000 * half, "node/n1": 2000 * half}
    )


# Two ends.


def test_the_lower_of_both_ends_counts() -> None:
    for amounts in ((600, 400), (400, 600)):
        cluster = trio()
        for node, amount in zip(("n1", "n2"), amounts, strict=True):
            cluster.report(node, flow(WEB.ip, DB.ip, amount))
        (edge,) = cluster.edges().values()
        assert edge.rates[MINUTE_S].mbps == pytest.approx(400 * 8 / 60e6)
        assert not edge.one_sided


def test_what_the_other_end_reports_without_counts_for_nothing() -> None:
    cluster = trio()
    cluster.report("n1", flow(WEB.ip, DB.ip, 600))
    cluster.report("n2", flow(CACHE.ip, DB.ip, 600))
    assert names(cluster) == {("shop/cache", "shop/db")}


def test_what_is_too_small_for_the_other_ends_report_counts_up_to_what_it_left_out() -> None:
    cluster = trio()
    cluster.report("n1", flow(WEB.ip, DB.ip, 600, packets=(20, 20)))
    cluster.report("n2", flow(CACHE.ip, DB.ip, 450), omitted=10_000)
    edge = cluster.edges()["shop/web", "shop/db", 80]
    assert edge.rates[MINUTE_S].mbps == pytest.approx(450 * 8 / 60e6)
    assert edge.rates[MINUTE_S].packets_per_s == pytest.approx(450 / 20 / 60)


# Bytes count once, whoever reports.


PODS = [
    replica(app, number, last)
    for app, last in (("a", 10), ("b", 11), ("c", 12))
    for number in (1, 2, 3)
]


class Truth:
    """A connection, as the kernels of the boards on its way count it."""

    def __init__(self, source: Pod | str, destination: Pod | str, amount: int, via: int) -> None:
        self.source, self.destination, self.amount, self.via = source, destination, amount, via

    def seen(self) -> dict[str, CountedFlow]:
        """By board."""
        source, destination = self.source, self.destination
        source_ip = source if isinstance(source, str) else source.ip
        ip = destination if isinstance(destination, str) else destination.ip
        seen: dict[str, CountedFlow] = {}
        here = None if isinstance(source, str) else source.node_name
        there = None if isinstance(destination, str) else destination.node_name
        if here is None and there is not None:
            # From outside, to a port of the board `via`, which forwards it.
            here = f"n{self.via}"
            own = f"10.42.{self.via}.0" if here != there else ""
            seen[here] = flow(source_ip, ip, self.amount, translated=True, translated_source=own)
            if own:
                seen[str(there)] = flow(own, ip, self.amount)
        elif here is not None:
            own = f"192.0.2.{here[1:]}" if there is None else ""
            seen[here] = flow(source_ip, ip, self.amount, translated_source=own)
            if there is not None:
                seen[there] = flow(source_ip, ip, self.amount)
        return seen


truths = st.lists(
    st.builds(
        Truth,
        st.sampled_from([*PODS, USER]),
        st.sampled_from([*PODS, NAS]),
        st.integers(1000, 10**9),
        st.integers(1, 3),
    ).filter(
        lambda each: (
            each.source != each.destination and (each.source, each.destination) != (USER, NAS)
        )
    ),
    max_size=12,
)


def tell(cluster: Cluster, happened: list[Truth], boards: set[str]) -> None:
    """These boards report what they saw."""
    flows: defaultdict[str, list[CountedFlow]] = defaultdict(list)
    for each in happened:
        for node, seen in each.seen().items():
            flows[node].append(seen)
    for node in sorted(boards):
        cluster.report(node, *flows[node])


@examples(100)
@given(truths, st.sets(st.sampled_from(["n1", "n2", "n3"])))
def test_each_byte_counts_once_whoever_reports_it(happened: list[Truth], boards: set[str]) -> None:
    cluster = Cluster(3, PODS)
    tell(cluster, happened, boards)
    counted = sum(edge.rates[MINUTE_S].mbps for edge in cluster.edges().values())
    told = sum(each.amount for each in happened if boards & each.seen().keys())
    assert counted == pytest.approx(told * 8 / 60e6)
    if boards == {"n1", "n2", "n3"}:
        between: defaultdict[tuple[str, str], float] = defaultdict(float)
        for each in happened:
            ends = [
                end if isinstance(end, str) else f"shop/{end.labels['app']}"
                for end in (each.source, each.destination)
            ]
            between[ends[0], ends[1]] += each.amount * 8 / 60e6
        found = {ends[:2]: edge.rates[HOUR_S].mbps for ends, edge in cluster.edges().items()}
        assert found == pytest.approx(between)


# A board that lies.


ADDRESSES = st.sampled_from(
    [
        *(pod.ip for pod in PODS),
        *(f"192.0.2.{number}" for number in (1, 2, 3, 9)),
        *("10.42.1.0", "10.42.2.0", "10.42.3.0", "10.42.1.99", USER, NAS),
    ]
)
lies = st.lists(
    st.builds(
        CountedFlow,
        ADDRESSES,
        ADDRESSES,
        st.sampled_from([80, 81]),
        *[st.integers(0, 2**50)] * 4,
        st.integers(0, 2**32 - 1),
        st.one_of(st.just(""), ADDRESSES),
        st.booleans(),
    ),
    max_size=64,
)


def numbers(edge: TrafficEdge) -> list[float]:
    assert edge.rates.keys() == set(WINDOWS_S)
    each = [edge.rates[window_s] for window_s in WINDOWS_S]
    rates = [(x.mbps, x.packets_per_s, x.connections_per_s) for x in each]
    return [number for row in rates for number in row] + [*edge.requests_per_s]


LONELY = [replica("front", 1, 20), replica("store", 2, 21), replica("liar", 3, 22)]


@examples(150)
@given(truths, lies, st.integers(0, 2**50), st.floats(0, 3600))
def test_a_board_that_lies_changes_nothing_between_others(
    happened: list[Truth], lied: list[CountedFlow], omitted: int, lasted_s: float
) -> None:
    """Neither between workloads that are on other boards, nor is anything of its own pods more than
    the other end says."""
    happened = [
        Truth(LONELY[0], LONELY[1], 5000, 1),
        Truth(LONELY[1], LONELY[0], 7000, 1),
        Truth(USER, LONELY[0], 9000, 2),
        *happened,
    ]
    elsewhere = [pod for pod in PODS if pod.node_name != "n3"]
    honest, attacked = Cluster(3, [*LONELY, *elsewhere]), Cluster(3, [*LONELY, *elsewhere])
    for cluster in (honest, attacked):
        tell(cluster, [each for each in happened if "n3" not in each.seen()], {"n1", "n2"})
        tell(cluster, [each for each in happened if "n3" in each.seen()], set())
    attacked.report("n3", *lied, omitted=omitted, s=lasted_s)
    before, after = honest.edges(), attacked.edges()
    for ends, edge in before.items():
        assert numbers(after[ends]) == numbers(edge), ends
        assert after[ends].one_sided == edge.one_sided
    for ends, edge in after.items():
        if ends not in before:
            # Both other boards report all that they see, so only what nobody else can know is left.
            mine = {edge.source.name, edge.destination.name} & {"shop/liar", "node/n3"}
            assert mine or {edge.source.node, edge.destination.node} & {"n3"}
            assert not {edge.source.name, edge.destination.name} & {"shop/front", "shop/store"}


@examples(60)
@given(lies, st.integers(0, 10**9))
def test_a_board_that_lies_about_its_own_pods_is_held_to_the_other_end(
    lied: list[CountedFlow], amount: int
) -> None:
    front, _, liar = LONELY
    cluster = Cluster(3, LONELY)
    cluster.report("n1", flow(front.ip, liar.ip, amount))
    cluster.report("n2")
    cluster.report("n3", flow(front.ip, liar.ip, 2**50), *lied)
    for (source, destination, _), edge in cluster.edges().items():
        if "shop/front" in (source, destination):
            assert (source, destination) == ("shop/front", "shop/liar")
            assert edge.rates[HOUR_S].mbps <= amount * 8 / 60e6 * (1 + 1e-9)


# Kubelet's probes.


@pytest.mark.parametrize(("a_second", "counts"), [(1, False), (4, False), (5, True)])
def test_what_a_board_sends_to_its_own_pod_counts_if_it_is_more_than_probes(
    a_second: int, counts: bool
) -> None:
    cluster = trio()
    probes = flow("10.42.1.1", WEB.ip, packets=(360 * a_second, 300 * a_second))
    cluster.report("n1", probes, flow(WEB.ip, DB.ip))
    expected = {("shop/web", "shop/db")} | ({("node/n1", "shop/web")} if counts else set())
    assert names(cluster) == expected


def test_what_a_pod_sends_to_its_own_board_and_a_board_to_other_boards_pods_counts() -> None:
    cluster = trio()
    flows = (WEB.ip, "192.0.2.1"), ("192.0.2.1", DB.ip)
    cluster.report("n1", *(flow(*ends, packets=(5, 5)) for ends in flows))
    assert names(cluster) == {("shop/web", "node/n1"), ("node/n1", "shop/db")}
