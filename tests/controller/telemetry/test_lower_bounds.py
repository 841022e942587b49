"""What the nodes' columns show of a bandwidth of which only a lower bound is known."""

import numpy as np
import pytest
from leadline_controller.telemetry.bandwidth_tests import BandwidthTest
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.state import TelemetryState

from tests.controller.telemetry.telemetry_builder import NAN, TelemetryBuilder, table

SHORT_S, LONG_S = 0.001, 1.0
NODES = table("n1", "n2", "never-heard")


def builder(**link_mbps: float) -> TelemetryBuilder:
    """Two boards and the speed of their interfaces."""
    built = TelemetryBuilder("n1", "n2")
    for name, mbps in link_mbps.items():
        built.state.report(
            name, built.stamp(name, measured_s=0.0), BoardReading({"link_mbps": mbps})
        )
    return built


def measure(state: TelemetryState, mbps: float, seconds: float) -> None:
    for client, server in (("n1", "n2"), ("n2", "n1")):
        state.bandwidth(BandwidthTest(client, server, mbps, seconds, 0.0))


def most_mbps(state: TelemetryState, now_s: float = 0.0) -> list[float]:
    return list(state.metrics(NODES, now_s).bandwidth_most_mbps)


@pytest.mark.parametrize(
    ("link_mbps", "seconds", "expected"),
    [
        ({"n1": 1000.0, "n2": 100.0}, SHORT_S, [1000.0, 100.0, NAN]),
        ({"n1": 1000.0, "n2": 100.0}, LONG_S, [1000.0, 94.0, NAN]),
        ({"n1": 1000.0}, SHORT_S, [1000.0, np.inf, NAN]),
        ({}, SHORT_S, [np.inf, np.inf, NAN]),
        ({"n1": 100.0, "n2": 100.0}, LONG_S, [94.0, 94.0, NAN]),
    ],
)
def test_a_lower_bound_may_be_as_much_as_the_interface_does(
    link_mbps: dict[str, float], seconds: float, expected: list[float]
) -> None:
    state = builder(**link_mbps).state
    measure(state, 94.0, seconds)
    # In 1 ms, a slower link can carry as much, with a shaper's burst, but that is improbable.
    known_mbps = 94.0 if seconds == LONG_S else pytest.approx(0.8 * 94.0)
    assert list(state.metrics(NODES, 0.0).bandwidth_mbps[:2]) == [known_mbps, known_mbps]
    np.testing.assert_equal(most_mbps(state), expected)


def test_a_bound_that_has_become_exact_is_a_change_of_bandwidth_and_of_the_columns() -> None:
    state = builder().state
    measure(state, 94.0, SHORT_S)
    assert most_mbps(state)[0] == np.inf
    changes = state.bandwidth_changes
    measure(state, 94.0, LONG_S)
    assert most_mbps(state)[0] == 94.0
    assert state.bandwidth_changes > changes


def test_a_bound_that_is_too_old_is_unknown() -> None:
    state = builder().state
    measure(state, 94.0, SHORT_S)
    np.testing.assert_equal(most_mbps(state, 1801.0), [NAN, NAN, NAN])


def test_the_columns_say_which_bandwidths_are_host_limited() -> None:
    state = builder().state
    state.bandwidth(BandwidthTest("n1", "n2", 50.0, LONG_S, 0.0, is_hindered=True))
    assert list(state.metrics(NODES, 0.0).bandwidth_host_limited) == [True, True, False]
    assert [link.is_host_limited for link in state.links(0.0)] == [True]
    assert list(state.metrics(NODES, 1801.0).bandwidth_host_limited) == [False, False, False]
    measure(state, 94.0, LONG_S)
    assert not state.metrics(NODES, 0.0).bandwidth_host_limited.any()
    assert [link.is_host_limited for link in state.links(0.0)] == [False]


def test_the_columns_are_cached_until_something_changes() -> None:
    state = builder().state
    measure(state, 94.0, SHORT_S)
    assert state.metrics(NODES, 0.2) is state.metrics(NODES, 0.4)
