"""What every listing can do, shown by one of made-up items, and by a cluster of 252 boards."""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.cli.listing import Listed, listing
from leadline_controller.cli.output import table
from leadline_controller.framework.ports import Relisted
from leadline_controller.telemetry.bandwidth_tests import BandwidthTest
from leadline_controller.telemetry.paths import PingRound

from tests.controller.cli.calling import Leadline
from tests.controller.inspect.harness import BOOT_ID, ControllerHarness, node
from tests.support.examples import examples

Board = dict[str, Any]
BOARDS: list[Board] = [
    {"name": "n10", "cpu": 5.0},
    {"name": "n2", "cpu": None},
    {"name": "n1", "cpu": 40},
]


def boards(*answers: Sequence[Board]) -> click.Command:
    """A listing of boards: each time that it asks, the next of these answers."""
    left = iter(answers)

    @click.command()
    @listing({"name": "name", "cpu": "cpu"}, watches=True)
    def shown() -> Listed[Board]:
        return Listed(
            "node",
            next(left),
            key=lambda board: board["name"],
            document=dict,
            whole=lambda documents: {"nodes": documents, "leader": True},
            tables=lambda items, _: [
                table(("NAME", "CPU"), ((each["name"], each["cpu"]) for each in items))
            ],
        )

    return shown


def printed(*options: str, answers: Sequence[Sequence[Board]] = (BOARDS,)) -> Result:
    return CliRunner().invoke(boards(*answers), options)


def names(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines()]


@pytest.mark.parametrize(
    ("by", "order"),
    [
        ("name", ["n1", "n2", "n10"]),
        ("-name", ["n10", "n2", "n1"]),
        ("cpu", ["n10", "n1", "n2"]),
        ("CPU", ["n10", "n1", "n2"]),
        ("-cpu", ["n1", "n10", "n2"]),
        ("{.cpu}", ["n10", "n1", "n2"]),
        (".name", ["n1", "n2", "n10"]),
    ],
)
def test_it_is_sorted_by_a_column_or_a_path_and_unknown_is_last(by: str, order: list[str]) -> None:
    assert names(printed("--sort-by", by, "--no-headers").output) == order


@pytest.mark.parametrize("by", ["temp", ".metadata.name", "{", "a[", "-"])
def test_what_it_cannot_be_sorted_by_is_bad_usage_that_names_the_columns(by: str) -> None:
    refused = printed("--sort-by", by)
    assert refused.exit_code == 2
    assert "name, cpu" in " ".join(refused.output.split())


def test_each_format_has_the_same_items_in_the_same_order() -> None:
    order = ["n1", "n10", "n2"]
    by = ("--sort-by", "-cpu")
    assert names(printed(*by).output) == ["NAME", *order]
    assert printed(*by, "-o", "name").output.split() == [f"node/{name}" for name in order]
    for path in ("{.nodes[*].name}", "{.items[*].name}"):
        assert printed(*by, "-o", f"jsonpath={path}").output == " ".join(order) + "\n"
    as_json = json.loads(printed(*by, "-o=json").output)
    assert as_json == yaml.safe_load(printed(*by, "--output=yaml").output)
    assert [each["name"] for each in as_json["nodes"]] == order
    assert as_json.keys() == {"nodes", "leader"}


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets a watch ask so often, and then presses Ctrl-C."""

    def limited(count: int) -> None:
        left = iter(range(count))

        def sleep(_: float) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt

        monkeypatch.setattr(time, "sleep", sleep)

    return limited


@pytest.mark.parametrize(
    ("output", "later"),
    [
        ("table", "n2    50\nn3    1\nnode/n10 is not listed any more\n"),
        ("name", "node/n2\nnode/n3\n"),
        ("jsonpath={.cpu}", "50\n1\n"),
    ],
)
def test_a_watch_shows_what_changed_and_what_left(
    output: str, later: str, polls: Callable[[int], None]
) -> None:
    polls(2)
    changed: list[Board] = [
        {"name": "n2", "cpu": 50},
        {"name": "n1", "cpu": 40},
        {"name": "n3", "cpu": 1},
    ]
    shown = printed("-w", "-o", output, answers=(BOARDS, BOARDS, changed))
    assert shown.exit_code == 0
    first = printed("-w", "-o", output, answers=(BOARDS,)).output
    assert shown.output == first + later


def test_a_watch_is_quiet_while_only_ages_and_measured_values_change(
    polls: Callable[[int], None],
) -> None:
    polls(3)
    answers = [
        [{"name": "n1", "age_s": at, "metrics": {"x": at}, "notes": [f"{at} messages lost"]}]
        for at in range(4)
    ]
    shown = printed("-w", "-o", "json", answers=answers)
    assert json.loads(shown.output) == answers[0][0]


VALUES = st.none() | st.integers() | st.floats(allow_nan=False) | st.text() | st.booleans()


@examples(100)
@given(st.lists(st.fixed_dictionaries({"cpu": VALUES}), max_size=8))
def test_nothing_is_lost_by_sorting(items: list[Board]) -> None:
    items = [{"name": str(at), **item} for at, item in enumerate(items)]
    for by in ("cpu", "-cpu"):
        order = names(printed("--sort-by", by, "-o", "name", answers=(items,)).output)
        assert sorted(order) == sorted(f"node/{item['name']}" for item in items)
        known = [items[int(name.partition("/")[2])]["cpu"] is not None for name in order]
        assert known == sorted(known, reverse=True)


COUNT, OFFLINE, PEERS = 252, 60, 6
PAIRS = COUNT * (COUNT - 1) // 2


@pytest.fixture
def harness() -> ControllerHarness:
    """252 boards in four racks, each of which measures its next ones. 60 have gone offline."""
    harness = ControllerHarness()
    names = [f"pi-{at}" for at in range(1, COUNT + 1)]
    racks = (node(name, labels={"rack": f"r{at % 4}"}) for at, name in enumerate(names))
    harness.cluster.apply(Relisted(tuple(racks), ()))
    for at, name in enumerate(names):
        harness.hear(name, cpu_percent=float(at % 97), memory_percent=40.0, cpu_celsius=50.0)
    for at, name in enumerate(names):
        peers = [names[(at + step) % COUNT] for step in range(1, PEERS + 1)]
        rounds = {peer: PingRound(1.0 + at + number) for number, peer in enumerate(peers)}
        harness.telemetry.rtts(name, harness.stamp(name), rounds)
        test = BandwidthTest(name, peers[0], 50.0 + at % 40, seconds=1.0, at_s=harness.now_s)
        harness.telemetry.bandwidth(test)
    for name in names[:OFFLINE]:
        harness.telemetry.status(name, BOOT_ID, 1, online=False)
    return harness


async def test_of_252_boards_the_60_that_went_offline_are_seen_at_once(leadline: Leadline) -> None:
    every, ill = await leadline("nodes"), await leadline("nodes", "--problems")
    assert (len(every.out.splitlines()), len(ill.out.splitlines())) == (COUNT + 2, OFFLINE + 1)
    assert all("the agent is offline" in line for line in ill.out.splitlines()[1:])
    one_rack = await leadline("nodes", "--problems", "-l", "rack in (r1, r9)", "-o", "name")
    assert names(one_rack.out) == [f"node/pi-{at}" for at in range(2, OFFLINE, 4)]
    told = json.loads((await leadline("nodes", "--problems", "-o", "json")).out)["nodes"]
    assert [each["problems"] for each in told] == [["the agent is offline"]] * OFFLINE
    healthy = await leadline("nodes", "--problems", "-l", "rack=none")
    assert (healthy.code, healthy.out) == (0, "no board is ill, of 0\n")


async def test_of_1512_pairs_the_worst_are_shown_and_it_says_so(leadline: Leadline) -> None:
    short = (await leadline("matrix")).out
    assert len(short.splitlines()) < 60
    assert f"{COUNT * PEERS} of {PAIRS} pairs are measured; these are the 20 worst" in short
    assert f"{COUNT} of {PAIRS} pairs are measured; these are the 20 worst" in short
    assert short.count("leadline matrix NODE") == 2
    few = (await leadline("matrix", "--rtt", "--worst", "3")).out.splitlines()
    assert [line.split()[2] for line in few[2:5]] == ["257", "256", "256"]
    assert len((await leadline("matrix", "--all")).out.splitlines()) > COUNT * (PEERS + 1)
    as_json = json.loads((await leadline("matrix", "-o", "json")).out)
    assert len(as_json["links"]) == COUNT * PEERS
    row = json.loads((await leadline("matrix", "pi-7", "--rtt", "-o", "json")).out)
    assert all("pi-7" in (link["a"], link["b"]) for link in row["links"])
    listed = (await leadline("matrix", "pi-7")).out.splitlines()
    assert len(listed) == 2 + len(row["links"])
    in_rack = json.loads((await leadline("matrix", "-l", "rack=r1", "-o", "json")).out)
    assert len(in_rack["nodes"]) == COUNT // 4
    assert {end for x in in_rack["links"] for end in (x["a"], x["b"])} <= {*in_rack["nodes"]}
