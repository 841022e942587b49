import pytest
from leadline_controller.telemetry import board_records

from tests.controller.telemetry.telemetry_builder import BOOT_ID, NAN, TelemetryBuilder, table


def test_the_number_of_invented_nodes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_records, "_MAX_NODES", 2)
    builder = TelemetryBuilder("n1", "n2")
    assert not builder.birth("n3")
    builder.state.status("n4", BOOT_ID, 1, online=True)
    assert set(builder.state.agents()) == {"n1", "n2"}
    assert builder.state.refused == {"too_many_nodes": 2}


def test_nodes_of_the_cluster_always_have_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(board_records, "_MAX_NON_MEMBERS", 3)
    builder = TelemetryBuilder()
    builder.state.set_members({"n1", "n2"}, 0.0)
    assert [builder.birth(f"phantom-{i}") for i in range(10)] == [True] * 3 + [False] * 7
    assert builder.state.refused == {"too_many_nodes": 7}
    assert builder.birth("n1")
    assert builder.report("n2", 2.0, at_s=1.0)
    assert {"n1", "n2"} < set(builder.state.agents())
    assert len(builder.state.agents()) == 5


def test_early_non_members_are_evicted_when_the_nodes_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(board_records, "_MAX_NON_MEMBERS", 3)
    phantoms = [f"phantom-{i}" for i in range(50)]
    builder = TelemetryBuilder(*phantoms, "n1")
    assert builder.state.set_members(None, 5.0) == []
    builder.state.set_members(None, 6.0)
    assert len(builder.state.agents()) == 51
    builder.report("phantom-7", 1.0, at_s=6.0)
    assert builder.state.set_members({"n1", "n2"}, 7.0) == ["n2"]
    kept = set(builder.state.agents())
    assert len(kept) == 4
    assert {"n1", "phantom-7"} < kept


def test_silent_non_members_are_replaced_by_others() -> None:
    builder = TelemetryBuilder()
    builder.state.set_members({"n1"}, 0.0)
    builder.birth("n1")
    builder.birth("silent")
    builder.birth("live")
    builder.report("silent", 9.0, at_s=0.0)
    builder.state.set_members({"n1"}, 500.0)
    builder.report("live", 8.0, at_s=500.0)
    builder.state.set_members({"n1"}, 601.0)
    assert set(builder.state.agents()) == {"n1", "live"}
    builder.birth("new")
    builder.state.set_members({"n1", "new", "live", "silent"}, 602.0)
    # The place of another is empty when it is taken.
    assert builder.state.board("new", 0.0).values == {}
    metrics = builder.state.metrics(table("live", "n1", "new", "silent"), 501.0)
    assert metrics.cpu_percent.tolist() == [8.0, *[pytest.approx(NAN, nan_ok=True)] * 3]


def test_a_node_that_left_the_cluster_is_removed_after_a_while() -> None:
    builder = TelemetryBuilder()
    builder.state.set_members({"n1", "n2"}, 0.0)
    builder.birth("n1")
    builder.birth("n2")
    builder.state.set_members({"n1"}, 10.0)
    assert set(builder.state.agents()) == {"n1", "n2"}
    builder.state.set_members({"n1"}, 601.0)
    assert set(builder.state.agents()) == {"n1"}


def test_slots_are_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = TelemetryBuilder()
    now_s = 0.0
    for turn in range(50):
        builder.state.set_members({"n1"}, now_s)
        for i in range(20):
            builder.birth(f"phantom-{turn}-{i}")
        now_s += 601.0
    assert len(builder.state._columns.at_s) == 64


def test_a_new_node_without_a_birth_is_returned_once() -> None:
    builder = TelemetryBuilder("n1")
    builder.report("n2", 1.0, at_s=1.0)
    assert builder.state.set_members({"n1", "n2", "n3"}, 0.0) == ["n2", "n3"]
    assert builder.state.set_members({"n1", "n2", "n3"}, 1.0) == []
    assert builder.state.set_members({"n1", "n2", "n3", "n4"}, 2.0) == ["n4"]


def test_a_retained_birth_counts_after_later_messages() -> None:
    builder = TelemetryBuilder()
    builder.report("n1", 1.0, at_s=1.0, sequence=50, measured_boot_ms=50_000)
    kept = {"retained": True, "sequence": 3, "measured_boot_ms": 3000}
    assert builder.birth("n1", "192.0.2.9", **kept)
    assert builder.state.agents()["n1"].address == "192.0.2.9"
    assert not builder.birth("n1", "192.0.2.10", **kept)
    assert builder.state.agents()["n1"].address == "192.0.2.9"
    assert builder.state.refused == {}  # what the broker keeps is no fault of the board
