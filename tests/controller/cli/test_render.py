import io
import re
from collections.abc import Iterable
from typing import Any

import pytest
from leadline_controller.cli import decisions, human, links, nodes
from leadline_controller.cli.commands import budget
from leadline_controller.history.times import Moment
from leadline_controller.inspect.budget import response
from leadline_controller.inspect.nodes import NodeReader
from leadline_controller.inspect.placements import explanation, placement
from leadline_wire.v1 import control_pb2 as pb
from rich.console import Console

from tests.controller.inspect.harness import ControllerHarness, example_controller

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def console(width: int = 80, *, terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=terminal)


def text(on: Console) -> str:
    assert isinstance(on.file, io.StringIO)
    return on.file.getvalue()


def rendered(*parts: Any, width: int = 80) -> str:
    on = console(width)
    on.print(*parts, sep="\n")
    return text(on)


def unset_clock(harness: ControllerHarness) -> Moment:
    """The moment on a machine whose wall clock was never set."""
    return Moment("boot", harness.now_s, None)


def explained(harness: ControllerHarness, pod: str) -> pb.ExplainPodResponse:
    record = harness.decisions.get(pod)
    assert record is not None
    return explanation([record], unset_clock(harness))


def rows(shown: str) -> dict[str, list[str]]:
    """The cells of each line, by the first one."""
    cells = (re.split(r" {2,}", line.strip()) for line in shown.splitlines() if line.strip())
    return {row[0]: row[1:] for row in cells}


def statuses(harness: ControllerHarness) -> list[pb.NodeStatus]:
    reader = NodeReader(harness.source)
    return [reader.status(name) for name in reader.names]


def show_all(harness: ControllerHarness, on: Console, *, wide: bool) -> None:
    reader = NodeReader(harness.source)
    on.print(nodes.NodesTable(statuses(harness), wide=wide))
    for kind in links.KINDS:
        on.print(links.matrix_of(reader.matrix(), kind, wide=wide))
    spent = response(harness.budget)
    on.print(*budget.tables(spent, spent.nodes, wide=wide), sep="\n")
    told = [placement(record, unset_clock(harness)) for record in harness.decisions.all()]
    on.print(decisions.placements_table(told, wide=wide))
    for pod in ("default/web-1", "default/huge"):
        on.print(*decisions.explanation_tables(explained(harness, pod), wide=wide), sep="\n")


def test_an_explanation_has_what_was_assumed_beside_what_was_measured() -> None:
    response = explained(example_controller(), "default/web-2")
    shown = rendered(*decisions.explanation_tables(response), width=200)
    assert (
        "assumed on n1: what 1 pod uses, which its last report did not contain; nothing tells "
        "packets and disk of 1\n"
    ) in shown
    assert {"12.5 + 12.5", "40 + 25", "120"} <= {*rows(shown)["n1"]}
    score = decisions.explanation(response)["scores"]["n1"]
    assert score["sum"]["memory_percent"] == 65.0
    assert (score["recently_placed"], score["rates_unknown"]) == (1, 1)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("terminal", [False, True])
def test_everything_fits_eighty_columns(wide: bool, terminal: bool) -> None:
    harness = example_controller(["raspberrypi-kitchen", "raspberrypi-attic"])
    on = console(80, terminal=terminal)
    show_all(harness, on, wide=wide)
    lines = _ESCAPE.sub("", text(on)).splitlines()
    assert max(map(len, lines)) <= 80
    assert any("raspberrypi-kitchen" in line for line in lines)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("width", [60, 40])
def test_on_a_narrow_terminal_every_table_of_nodes_begins_with_whole_names(
    width: int, wide: bool
) -> None:
    names = ["raspberrypi-kitchen", "raspberrypi-attic"]
    on = console(width)
    on.print(nodes.NodesTable(statuses(example_controller(names)), wide=wide))
    lines = text(on).splitlines()
    assert max(map(len, lines)) <= width
    shown = [line.split()[0] for line in lines if line.strip()]
    tables = shown.count("NAME")
    assert tables > 1
    for name in names:
        assert shown.count(name) >= tables
    told = "\n".join(line for line in lines if not line.startswith("agent never"))
    columns = ["AGENT", "CPU", "TEMP", "DISK", "BANDWIDTH", "PODS"] + ["MODEL"] * wide
    assert all(column in told for column in columns)


def test_no_other_layout_of_nodes_is_made_than_those_that_are_tried() -> None:
    made = []

    class Counted(nodes.NodesTable):
        def _laid_out(self, *layout: Any) -> Any:
            made.append(layout)
            return super()._laid_out(*layout)

    on = console(400)
    on.print(Counted(statuses(example_controller())))
    assert len(made) == 1


def test_no_colours_where_there_is_no_terminal() -> None:
    on = console()
    show_all(example_controller(), on, wide=True)
    assert "\x1b" not in text(on)


def test_a_terminal_gets_colours_and_bars() -> None:
    on = console(120, terminal=True)
    on.print(nodes.NodesTable(statuses(example_controller())))
    assert "\x1b[" in text(on)
    assert "12.5 ▂" in _ESCAPE.sub("", text(on))


def test_unknown_is_a_dash_and_a_bound_is_marked() -> None:
    told = rows(rendered(nodes.NodesTable(statuses(example_controller())), width=120))
    assert told["n1"][:8] == ["online", "12.5", "40", "51", "120/80", "5k", ">= 94.9", "13s"]
    assert told["n3"] == ["-", "-", "-", "-", "-", "-", "-", "-", "0", "agent never heard"]
    assert told["n2"][2] == "-"


def test_notes_that_do_not_fit_are_printed_below() -> None:
    shown = rendered(nodes.NodesTable(statuses(example_controller(["n4"]))), width=72)
    assert "NOTES" not in shown
    assert "agent never heard: n3, n4" in shown


def test_an_empty_cluster_is_named_as_such() -> None:
    shown = rendered(nodes.NodesTable([]), links.matrix_of(pb.GetMatrixResponse(), "rtt"))
    assert shown.count("no nodes") == 2


def test_names_with_numbers_are_in_numeric_order() -> None:
    names = NodeReader(example_controller(["n10", "n9"]).source).names
    assert names == ["guest", "n1", "n2", "n3", "n9", "n10"]


@pytest.mark.parametrize(
    ("kind", "wide", "value"), [("rtt", False, "0.42"), ("bandwidth", True, ">= 94.9 (2m)")]
)
def test_a_matrix_is_symmetric_and_a_wide_one_shows_method_and_age(
    kind: links.Kind, wide: bool, value: str
) -> None:
    answer = NodeReader(example_controller().source).matrix()
    told = rows(rendered(links.matrix_of(answer, kind, wide=wide)))
    assert (told["n1"], told["n2"]) == (["-", "·", value, "-"], ["-", value, "·", "-"])


@pytest.mark.parametrize(
    ("link", "narrow", "wide"),
    [
        ({"rtt_source": "measured", "rtt_method": "icmp", "rtt_age_s": 9}, "12", "12 (icmp 9s)"),
        (
            {"rtt_source": "stale", "rtt_method": "icmp", "rtt_age_s": 400},
            "?12",
            "?12 (icmp ±1.5 6m)",
        ),
        ({"rtt_source": "estimated"}, "~12", "~12 (estimated ±1.5)"),
        (
            {"rtt_source": "measured", "rtt_method": "icmp", "jitter_ms": 1.1, "loss": 0.004},
            "12",
            "12 (icmp)",
        ),
        (
            {
                **{"rtt_source": "measured", "rtt_method": "icmp", "rtt_age_s": 9},
                **{"flapping": True, "jitter_ms": 3.0, "loss": 0.25},
            },
            "!12",
            "!12 (icmp 9s flapping jitter 3 loss 25 %)",
        ),
        ({"rtt_source": "triangulated"}, "~12", "~12 (triangulated ±1.5)"),
        # A round trip through the broker is an upper bound.
        ({"rtt_method": "mqtt", "rtt_age_s": 1}, "<= 12", "<= 12 (mqtt 1s)"),
    ],
)
def test_a_round_trip_shows_its_source(link: dict[str, Any], narrow: str, wide: str) -> None:
    status = pb.LinkStatus(a="a", b="b", rtt_ms=12.0, rtt_error_ms=1.5, **link)
    response = pb.GetMatrixResponse(nodes=["a", "b"], links=[status])
    for is_wide, expected in ((False, narrow), (True, wide)):
        shown = rendered(links.matrix_of(response, "rtt", wide=is_wide), width=200)
        assert rows(shown)["a"] == ["·", expected]


def test_a_pair_that_loses_all_packets_is_shown_as_lost() -> None:
    status = pb.LinkStatus(a="a", b="b", rtt_source="unreachable", loss=1.0)
    answer = pb.GetMatrixResponse(nodes=["a", "b"], links=[status])
    assert rows(rendered(links.matrix_of(answer, "rtt")))["a"] == ["·", "lost"]
    told = links.document(status)
    assert (told["rtt_ms"], told["rtt_source"], told["loss"]) == (None, "unreachable", 1.0)
    assert (told["jitter_ms"], told["flapping"]) == (None, False)


def test_a_node_shows_jitter_and_loss_of_its_links() -> None:
    trip: dict[str, Any] = {"rtt_ms": 12.0, "rtt_source": "measured", "rtt_method": "icmp"}
    flaps: dict[str, Any] = {"jitter_ms": 0.25, "loss": 0.125, "flapping": True}
    status = pb.LinkStatus(a="a", b="b", rtt_age_s=9, **trip, **flaps)
    shown = rows(rendered(links.links_of("a", [status])))["b"]
    assert shown[0] == "!12"
    assert "flapping" in shown[1]
    assert shown[2:4] == ["0.25", "12.5"]


def test_a_matrix_marks_what_a_busy_board_has_shown_and_says_what_that_is() -> None:
    bound: dict[str, Any] = {"bandwidth_is_lower_bound": True, "bandwidth_is_host_limited": True}
    pairs = [
        pb.LinkStatus(a="a", b="b", bandwidth_mbps=60, **bound),
        pb.LinkStatus(a="a", b="c", bandwidth_mbps=94, bandwidth_is_lower_bound=True),
    ]
    answer = pb.GetMatrixResponse(nodes=["a", "b", "c"], links=pairs)
    shown = rendered(links.matrix_of(answer, "bandwidth"))
    assert rows(shown)["a"] == ["·", "*>= 60", ">= 94"]
    assert shown.rstrip().endswith("throttled or under voltage in the test")
    assert "busy" not in rendered(links.matrix_of(answer, "rtt"))
    assert ", a board was busy)" in rendered(links.matrix_of(answer, "bandwidth", wide=True))


def test_a_matrix_that_does_not_fit_is_a_list_of_pairs() -> None:
    reader = NodeReader(example_controller([f"n{i}" for i in range(4, 24)]).source)
    narrow = rendered(links.matrix_of(reader.matrix(), "rtt"))
    assert rows(narrow)["n1"] == ["n2", "0.42", "icmp 12s"]
    assert "1 of 276 pairs are known" in narrow
    assert "·" in rendered(links.matrix_of(reader.matrix(), "rtt"), width=400)


def test_an_explanation_starts_with_the_best_and_marks_the_winner() -> None:
    answer = explained(example_controller(), "default/web-1")
    shown = rendered(*decisions.explanation_tables(answer))
    assert shown.startswith("default/web-1 -> n1\nbound, decided 10s ago by netsched (alpha 0.5)\n")
    (winner,) = (line for line in shown.splitlines() if line.startswith("*"))
    assert winner.split()[:3] == ["*", "n1", "10"]
    assert shown.index("n1 ") < shown.index("n3 ")
    assert "n2        NodeUnschedulable: the node is cordoned" in shown


def test_a_narrow_explanation_keeps_every_part() -> None:
    answer = explained(example_controller(), "default/web-1")
    shown = rendered(*decisions.explanation_tables(answer), width=50)
    assert max(map(len, shown.splitlines())) <= 50
    assert "cpu_percent 3" in " ".join(shown.split())


def scores(totals: Iterable[tuple[str, float | None]], better: str, node: str) -> list[str]:
    response = pb.ExplainPodResponse(
        placement=pb.Placement(node=node),
        better=better,
        scores=[pb.NodeScore(node=name, total=total) for name, total in totals],
    )
    return [score.node for score in decisions.by_merit(response)]


def test_scores_are_sorted_from_the_best_to_the_worst() -> None:
    totals = [("a", None), ("b", 2.0), ("c", 1.0), ("d", 2.0)]
    assert scores(totals, "lower", "c") == ["c", "b", "d", "a"]
    assert scores(totals, "higher", "d") == ["d", "b", "c", "a"]


def test_a_long_explanation_is_cut_and_says_so() -> None:
    harness = example_controller([f"n{i}" for i in range(4, 44)])
    answer = explained(harness, "default/huge")
    short = rendered(*decisions.explanation_tables(answer), width=100)
    assert "and 28 more; -o wide shows all" in short
    assert "n43" not in short
    assert "n43" in rendered(*decisions.explanation_tables(answer, wide=True), width=100)


def test_text_from_the_network_cannot_control_the_terminal() -> None:
    on = console(120, terminal=True)
    evil = "[red]x[/red]\x1b]0;owned\x07\n"
    on.print(
        decisions.placements_table([pb.Placement(pod=evil, node="n1", why=evil, outcome="bound")])
    )
    shown = text(on)
    assert "[red]x[/red]" in shown
    assert "\x1b]0" not in shown
    assert "\x07" not in shown


def test_a_budget_shows_percent_of_link_time_and_bytes() -> None:
    told = response(example_controller().budget)
    shown = rendered(*budget.tables(told, told.nodes, wide=False))
    assert rows(shown)["n1"] == ["0.09", "0.1", "500M", "500M", "12", "96"]
    assert rows(shown)["lte"] == ["0.09", "0.1", "500M", "500M", "12", "-"]
    assert "running: n1 -> n2 over lte, at most 131kB" in shown


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ({}, "94.9 Mbit/s"),
        ({"lower_bound": True}, ">= 94.9 Mbit/s"),
        ({"in_words": "at least 61 Mbit/s", "source": "tests"}, "at least 61 Mbit/s"),
        ({"lower_bound": True, "host_limited": True, "in_words": "at least 95"}, "at least 95"),
        ({"suspect": True, "in_words": "was 95: checking"}, "was 95: checking"),
        (
            {"source": "counters", "lower_bound": True},
            ">= 94.9 Mbit/s, which it carried; not tested",
        ),
        ({"source": "interface"}, "94.9 Mbit/s, the speed of its interface; not tested"),
    ],
)
def test_a_node_shows_its_link_and_how_well_its_bandwidth_is_known(
    state: dict[str, Any], shown: str
) -> None:
    status = pb.NodeStatus(
        name="n1",
        metrics=[
            pb.Measurement(name="link_mbps", value=1000),
            pb.Measurement(name="used_mbps", value=12.34),
            pb.Measurement(name="bandwidth_mbps", value=94.9, **state),
        ],
    )
    facts = rows(rendered(*nodes.node_details(pb.GetNodeResponse(node=status))))
    assert facts["interface"] == ["1000 Mbit/s"]
    assert facts["users' traffic"] == ["12.3 Mbit/s"]
    assert facts["bandwidth"] == [shown]
    assert nodes.document(status)["metrics"]["bandwidth_mbps"] == {
        "value": 94.9,
        "age_s": 0.0,
        "confidence": 0.0,
        **state,
    }


def test_a_summary_is_one_line() -> None:
    shown = {x.name: x for x in statuses(example_controller())}
    assert nodes.summary(shown["n3"]) == "agent unknown, 0 pods, agent never heard"
    assert "CPU 12.5 %, memory 40 %, bandwidth >= 94.9 Mbit/s, 2 pods" in nodes.summary(shown["n1"])


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "-"), (0, "0s"), (3.4, "3s"), (119, "119s"), (120, "2m"), (7200, "2h"), (2e5, "2d")],
)
def test_ages(seconds: float | None, shown: str) -> None:
    assert human.age(seconds) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0, "0"),
        (0.0421234, "0.0421"),
        (12.5, "12.5"),
        (40, "40"),
        (94.94, "94.9"),
        (941.6, "942"),
        (12345.6, "12346"),
        (-1.5, "-1.5"),
        (0.0033, "0.0033"),
        (999_999_999.4, "999999999"),
        (1e-40, "1e-40"),
        (-1.234e-40, "-1.23e-40"),
        (1e300, "1e+300"),
        (-0.0, "0"),
        (float("nan"), "-"),
        (float("inf"), "inf"),
        (10**40, "1e+40"),
    ],
)
def test_numbers(value: float | None, shown: str) -> None:
    assert human.number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0, "0"),
        (0.5, "0.5"),
        (999, "999"),
        (5000, "5k"),
        (12345, "12.3k"),
        (2e6, "2M"),
    ],
)
def test_amounts(value: float | None, shown: str) -> None:
    assert human.amount(value) == shown


ODD = (0.0, -0.0, 1e-300, 1e-40, -1e-9, 1e-6, 0.1234567, 99.95, 999.96, 123456.7, 999_999_999.9)
HUGE = (1e9, 1e12, 2**63, 1.8e19, 1e40, 1e300, -1e300, float("inf"), float("-inf"), float("nan"))
RENDERED = (human.age, human.number, human.amount, human.size, human.moment, human.bar)


@pytest.mark.parametrize("value", [*ODD, *HUGE])
def test_no_value_is_wider_than_a_column(value: float) -> None:
    widths = {render.__name__: len(render(value)) for render in RENDERED}
    assert widths.pop("moment") in (1, 19)
    assert widths.pop("bar") == 1
    assert max(widths.values()) <= 11, widths


@pytest.mark.parametrize("value", [*ODD, *HUGE])
def test_odd_values_leave_the_table_of_nodes_as_wide_as_ever(value: float) -> None:
    names = ("cpu_percent", "memory_percent", "cpu_celsius", "disk_bytes_per_s", "bandwidth_mbps")
    metrics = [
        *(pb.Measurement(name=name, value=value, age_s=value) for name in names),
        pb.Measurement(name="packets_sent_per_s", value=value),
        pb.Measurement(name="packets_received_per_s", value=value),
    ]
    status = pb.NodeStatus(name="n1", agent="online", metrics=metrics, report_age_s=value)
    lines = rendered(nodes.NodesTable([status]), width=200).splitlines()
    assert max(map(len, lines)) <= 130
    rendered(*nodes.node_details(pb.GetNodeResponse(node=status)))
    assert human.chart([value, 1.0, 2.0], plain=True)[1:] != ""


def test_a_node_shows_what_its_board_is_and_which_collectors_failed() -> None:
    status = pb.NodeStatus(
        name="n1",
        agent="online",
        hardware_model="Raspberry Pi 5",
        architecture="aarch64",
        kernel="6.12.25",
        cores=4,
        memory_bytes=8 * 2**30,
        report_interval_s=10,
        report_age_s=3,
        failed={"disk": "/proc/diskstats cannot be read"},
    )
    told = rendered(*nodes.node_details(pb.GetNodeResponse(node=status)), width=120)
    assert "Raspberry Pi 5, 4 cores, 8Gi, aarch64, Linux 6.12.25" in told
    assert "3s ago, every 10 s" in told
    shown = nodes.document(status)
    assert shown["failed"] == {"disk": "/proc/diskstats cannot be read"}
    assert (shown["cores"], shown["memory_bytes"]) == (4, 8 * 2**30)
    assert (shown["architecture"], shown["kernel"]) == ("aarch64", "6.12.25")
