"""What Prometheus reads: both formats say the same, and what is unknown is left out."""

import math

import pytest
from leadline_controller.history.log import BOUND, GONE, PENDING
from leadline_controller.metrics.instruments import Instruments
from leadline_controller.serve.settings import MetricsSettings, ServeError
from leadline_controller.telemetry.accepted import Agent
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.paths import PingRound
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from tests.controller.inspect.harness import ControllerHarness, example_controller, pod
from tests.controller.metrics.scraped import Samples, read, reader, samples, value
from tests.controller.traffic.traffic_builder import Cluster, flow, replica

HOSTILE = 'a"} 1\nleadline_leader 0 # \\'


def test_both_formats_have_the_same_samples() -> None:
    # The example's clock does not move.
    metrics = reader(example_controller())
    in_text = read(metrics)
    in_openmetrics = samples(
        read_openmetrics(metrics.begin()(True).decode())  # type: ignore[no-untyped-call]
    )
    ours = {key: each for key, each in in_text.items() if key[0].startswith("leadline_")}
    assert len(ours) > 60
    assert ours == {
        key: each for key, each in in_openmetrics.items() if key[0].startswith("leadline_")
    }


def test_values_are_in_base_units_and_what_is_unknown_is_missing() -> None:
    found = read(reader(example_controller()))
    assert value(found, "board_cpu_usage_ratio", node="n1") == 0.125
    assert value(found, "board_cpu_temperature_celsius", node="n1") == 51.0
    assert value(found, "board_cpu_frequency_hertz", node="n1") == 1.5e9
    assert value(found, "board_load1", node="n1") == 0.42
    assert math.isnan(value(found, "board_cpu_temperature_celsius", node="n2"))
    assert value(found, "board_report_age_seconds", node="n1") == 13.0
    assert value(found, "board_bandwidth_bytes_per_second", node="n1") == 94.9e6 / 8
    assert value(found, "board_bandwidth_lower_bound", node="n1") == 1.0
    labels = {"node": "n2", "peer": "n1"}
    assert value(found, "link_rtt_seconds", **labels, source="measured") == 0.00042
    assert value(found, "link_loss_ratio", **labels) == 0.0
    assert value(found, "links", source="measured") == 1.0
    assert value(found, "probe_left_bytes", node="n1") == 5e8
    assert value(found, "uplink_probe_spent_bytes", uplink="lte") == 5e8
    assert value(found, "nodes", state="unschedulable") == 1.0
    assert value(found, "pending_pods", queue="active") == 2.0
    assert value(found, "leader") == value(found, "mqtt_connected") == 1.0
    assert value(found, "certificate_expiry_timestamp_seconds", use="broker.tls.cert_file") == 2e9
    harness = example_controller()
    harness.now_s += 61  # the time to live of a report
    found = read(reader(harness))
    assert math.isnan(value(found, "board_cpu_usage_ratio", node="n1"))
    assert value(found, "board_report_age_seconds", node="n1") == 74.0


def test_a_board_that_never_reported_has_no_age_of_its_report() -> None:
    harness = example_controller()
    harness.telemetry.birth(Agent("born"), harness.stamp("born"))
    found = read(reader(harness))
    assert value(found, "board_info", node="born", model="", agent_version="") == 1.0
    assert math.isnan(value(found, "board_report_age_seconds", node="born"))


@pytest.mark.parametrize(("flags", "shown"), [({}, math.nan), ({"throttled": False}, 0.0)])
def test_a_board_that_cannot_tell_whether_it_is_throttled_has_no_sample(
    flags: dict[str, bool], shown: float
) -> None:
    harness = ControllerHarness()
    harness.telemetry.report("n1", harness.stamp("n1"), BoardReading(flags=flags))
    found = value(read(reader(harness)), "board_throttled", node="n1")
    assert found == shown or (math.isnan(found) and math.isnan(shown))


def test_no_name_that_a_board_chooses_can_add_a_sample() -> None:
    harness = ControllerHarness()
    agent = Agent(HOSTILE, hardware_model=HOSTILE, version=HOSTILE)
    harness.telemetry.birth(agent, harness.stamp(HOSTILE))
    for openmetrics, parse in ((False, read_text), (True, read_openmetrics)):
        text = reader(harness).begin()(openmetrics).decode()
        found = samples(parse(text))
        assert value(found, "leader") == 1.0
        labels = {"node": HOSTILE, "model": HOSTILE, "agent_version": HOSTILE}
        assert value(found, "board_info", **labels) == 1.0


def test_the_100_largest_edges_are_shown_in_base_units() -> None:
    web = replica("web", 1, 5)
    pods = [replica(f"app-{number}", 2, number) for number in range(2, 122)]
    cluster = Cluster(2, [web, *pods])
    flows = [flow(web.ip, pod.ip, 6000 * int(pod.ip.split(".")[3])) for pod in pods]
    cluster.report("n1", *flows)
    cluster.update()
    harness = example_controller()
    harness.source.traffic_graph = cluster.graph
    found = read(reader(harness))
    shown = {
        dict(labels)["destination"]
        for name, labels in found
        if name == "leadline_traffic_bytes_per_second"
    }
    assert shown == {f"shop/app-{number}" for number in range(22, 122)}
    labels = {"source": "shop/web", "destination": "shop/app-50", "port": "80"}
    assert value(found, "traffic_bytes_per_second", **labels) == pytest.approx(5000.0)
    assert value(found, "traffic_packets_per_second", **labels) == pytest.approx(15.0)
    assert value(found, "traffic_connections_per_second", **labels) == pytest.approx(1.0)
    assert value(found, "traffic_edges_dropped_total") == 0.0
    harness.now_s = cluster.now_s = 2000.0
    cluster.update()
    assert math.isnan(value(read(reader(harness)), "traffic_bytes_per_second", **labels))


def meshed(boards: int) -> ControllerHarness:
    """Board i is (i + j) * 0.1 ms away from board j, so the first ones are the nearest to all."""
    harness = ControllerHarness()
    names = [f"n{i}" for i in range(boards)]
    for name in names:
        harness.hear(name)
    for i, name in enumerate(names):
        rounds = {peer: PingRound((i + j) / 10) for j, peer in enumerate(names) if j > i}
        harness.telemetry.rtts(name, harness.stamp(name), rounds)
    return harness


def peers(found: Samples, node: str) -> set[str]:
    return {
        dict(labels)["peer"]
        for name, labels in found
        if name == "leadline_link_rtt_seconds" and dict(labels)["node"] == node
    }


def test_links_are_those_to_the_nearest_peers_or_all() -> None:
    harness = meshed(8)
    assert peers(read(reader(harness, peers=2)), "n7") == {"n0", "n1"}
    assert peers(read(reader(harness, peers=0)), "n7") == set()
    assert len(peers(read(reader(harness, every_link=True)), "n7")) == 7


def test_a_peer_is_shown_until_another_is_far_nearer() -> None:
    harness, shown = meshed(8), {"n0", "n1"}
    metrics = reader(harness, peers=2)
    assert peers(read(metrics), "n7") == shown
    for rtt_ms, expected in ((0.6, shown), (0.1, {"n6", "n0"})):
        for _ in range(3):  # of which the median counts
            harness.now_s += 1
            round_ = {"n6": PingRound(rtt_ms)}
            harness.telemetry.rtts("n7", harness.stamp("n7"), round_)
        assert peers(read(metrics), "n7") == expected


def test_a_peer_that_does_not_answer_has_a_loss_of_one_and_no_round_trip() -> None:
    harness = meshed(3)
    for _ in range(3):
        harness.now_s += 1
        for name in ("n0", "n1"):
            other = {"n0": "n1", "n1": "n0"}[name]
            harness.telemetry.rtts(name, harness.stamp(name), {other: PingRound(None, 2, 0)})
    found = read(reader(harness))
    assert value(found, "link_loss_ratio", node="n0", peer="n1") == 1.0
    assert peers(found, "n0") == {"n2"}
    assert value(found, "links", source="unreachable") == 1.0


def test_columns_are_what_readings_of_links_say() -> None:
    harness = meshed(12)
    harness.telemetry.estimate_rtts(harness.now_s)  # now single rounds count less
    harness.now_s += 400  # more than half of the time to live
    harness.telemetry.rtts("n0", harness.stamp("n0"), {"n1": PingRound(0.3)})
    columns = harness.telemetry.pairs(harness.now_s)
    found = {
        frozenset((columns.names[a], columns.names[b])): (rtt, error, loss, stale)
        for (a, b), rtt, error, loss, stale in zip(
            columns.ends.tolist(),
            columns.rtt_ms.tolist(),
            columns.error_ms.tolist(),
            columns.loss.tolist(),
            columns.is_stale.tolist(),
            strict=True,
        )
    }
    statuses = harness.telemetry.links(harness.now_s)
    assert len(statuses) == len(found) == 66
    for each in statuses:
        rtt_ms, error_ms, loss, is_stale = found[frozenset((each.a, each.b))]
        assert rtt_ms == pytest.approx(each.rtt_ms)
        assert error_ms == pytest.approx(each.rtt_error_ms)
        assert loss == pytest.approx(each.loss)
        assert is_stale == (each.rtt_source == "stale")


def test_decisions_are_counted_once_with_the_filter_that_refused_the_most() -> None:
    harness = example_controller()
    instruments = Instruments()
    harness.decisions._sink = instruments.count
    harness.place(pod("huge", cpu_milli=64_000), PENDING)
    harness.place(pod("huge", cpu_milli=64_000), PENDING)
    for name, outcome in (("a", BOUND), ("b", "failed: a conflict"), ("c", GONE)):
        harness.place(pod(name, cpu_milli=1), PENDING)
        harness.decisions.set_outcome(f"default/{name}", outcome)
        harness.decisions.set_outcome(f"default/{name}", "moved, from n1 to n2")
    found = samples(instruments.registry.collect())
    counts = {
        (labels["outcome"], labels["reason"]): count
        for (name, key), count in found.items()
        if name == "leadline_decisions_total" and (labels := dict(key))
    }
    assert counts == {
        ("unschedulable", "NodeResourcesFit"): 2.0,
        ("bound", ""): 1.0,
        ("failed", ""): 1.0,
        ("gone", ""): 1.0,
    }


def test_preemptions_are_counted_by_their_victims() -> None:
    instruments = Instruments()
    for victims in (1, 3):
        instruments.preempted(victims)
    instruments.scheduled("preempt", 0.02)
    found = samples(instruments.registry.collect())
    name = "preemption_victims"
    assert value(found, f"{name}_count") == 2.0
    assert value(found, f"{name}_sum") == 4.0
    assert value(found, f"{name}_bucket", le="2.0") == 1.0
    assert value(found, "scheduling_duration_seconds_count", phase="preempt") == 1.0


def test_prometheus_takes_no_unix_socket_and_other_machines_need_certificates() -> None:
    for address in ("unix:/run/metrics.sock", "0.0.0.0:25508"):
        with pytest.raises(ServeError, match=r"host:port only|other machines"):
            MetricsSettings(address)
