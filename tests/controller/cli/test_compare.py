"""What `leadline compare` prints, from a controller that answers."""

import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from leadline_controller.history.shadowed import ShadowDecision

from tests.controller.cli.calling import Leadline
from tests.controller.history.decision_builder import Machine
from tests.controller.history.shadow_builder import shadow
from tests.controller.inspect.harness import ControllerHarness


def on(harness: ControllerHarness, *names: str) -> None:
    """These strategies decide without effect."""
    harness.source.shadow = SimpleNamespace(names=names)


def keep(harness: ControllerHarness, *changes: dict[str, Any]) -> None:
    """What a shadow found, newest last; `ago_s` seconds ago."""
    made: list[ShadowDecision] = []
    for each in changes:
        now = harness.moment()
        at = now._replace(up_s=now.up_s - each.pop("ago_s", 1.0))
        made.append(msgspec.structs.replace(shadow(Machine()), at=at, **each))
    harness.history.put_shadows(made)


async def test_the_comparison_in_every_format(
    harness: ControllerHarness, leadline: Leadline
) -> None:
    on(harness, "netsched")
    later = {"cpu_percent": (80.0, 35.0)}
    keep(harness, {"choice": "n1"}, {"missed": 2}, {"later": later}, {"choice": None})
    # What was kept is measured when it is due, so here it is as it was put.
    shown = await leadline("compare")
    assert (shown.code, shown.err) == (0, "")
    lines = [line.split() for line in shown.out.splitlines()]
    assert ["netsched", "dacs", "4", "67", "25", "0", "50", "25", "0.5", "2"] in lines
    assert "not measured yet" in shown.out
    assert "differs most on default/web (3 of 4)" in shown.out
    assert (
        "differs most with n2 instead of n1 (2 of 4), no node instead of n1 (1 of 4)" in shown.out
    )
    assert "netsched beside dacs: nothing measured tells yet" in shown.out
    document = json.loads((await leadline("compare", "-o", "json")).out)
    assert (document["strategy"], document["shadows"]) == ("netsched", ["netsched"])
    (one,) = document["comparisons"]
    assert (one["decisions"], one["missed"], one["same"], one["pending"]) == (4, 2, 1, 1)
    assert (one["gain"], one["place"], one["verdicts"]) == (0.5, 2.0, [])


async def test_since_leaves_older_decisions_out(
    harness: ControllerHarness, leadline: Leadline
) -> None:
    on(harness, "netsched")
    keep(harness, {"ago_s": 500.0}, {"ago_s": 5.0})
    for since, count in (("10s", 1), ("1h", 2)):
        document = json.loads((await leadline("compare", "--since", since, "-o", "json")).out)
        assert document["comparisons"][0]["decisions"] == count
    shown = await leadline("compare", "--since", "soon")
    assert shown.code == 2
    assert "expected a duration" in shown.err


@pytest.mark.parametrize("arguments", [(), ("tsra",)])
async def test_without_a_shadow_one_line_says_what_to_set(
    leadline: Leadline, arguments: tuple[str, ...]
) -> None:
    shown = await leadline("compare", *arguments)
    assert (shown.code, shown.out) == (1, "")
    assert len(shown.err.splitlines()) == 1
    assert '[shadow] strategies = ["' in shown.err
    assert (arguments or ("netsched",))[0] in shown.err


async def test_only_the_named_strategies(harness: ControllerHarness, leadline: Leadline) -> None:
    on(harness, "netsched", "tsra", "nas")
    keep(harness, {}, {"strategy": "tsra"})
    document = json.loads((await leadline("compare", "tsra", "-o", "json")).out)
    assert [each["strategy"] for each in document["comparisons"]] == ["tsra"]
    shown = await leadline("compare", "nas")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out == "nas saw no decision between several boards yet\n"


async def test_a_shadow_that_has_ended_is_still_shown(
    harness: ControllerHarness, leadline: Leadline
) -> None:
    keep(harness, {})
    shown = await leadline("compare")
    assert shown.code == 0
    assert "netsched" in shown.out
