"""A shell completes the names of nodes and pods, and gets none where no controller answers."""

import asyncio

import pytest
from click.shell_completion import ShellComplete
from leadline_controller.cli.__main__ import leadline as command
from leadline_controller.traffic.edges import End

from tests.controller.inspect.counts import FakeCounts, edge
from tests.controller.inspect.harness import ControllerHarness
from tests.support.ports import free_port


async def completed(*typed: str) -> list[str]:
    """What a shell offers for the last word."""
    shell = ShellComplete(command, {}, "leadline", "_LEADLINE_COMPLETE")
    *before, last = typed
    found = await asyncio.to_thread(shell.get_completions, before, last)
    return [each.value for each in found]


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        (("node", ""), ["guest", "n1", "n2", "n3"]),
        (("node", "n2"), ["n2"]),
        (("matrix", "g"), ["guest"]),
        (("placements", "--node", "n3"), ["n3"]),
        (("explain", "we"), ["web-1", "web-2"]),
        (("explain", "default/web-1"), ["default/web-1"]),
        (("explain", "-n", "elsewhere", "we"), []),
        (("explain", "nothing"), []),
    ],
    ids=" ".join,
)
async def test_names_of_nodes_and_pods(
    typed: tuple[str, ...], names: list[str], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEADLINE_ADDRESS", address)
    assert await completed(*typed) == names
    monkeypatch.delenv("LEADLINE_ADDRESS")
    name, *more = typed
    assert await completed(name, "--address", address, *more) == names
    assert await completed("--address", address, *typed) == names


@pytest.mark.parametrize("wrong", [("--address", "nowhere"), ("--ca", "/none.pem")], ids=" ".join)
async def test_without_a_controller_there_are_none_and_no_word_of_it(
    wrong: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    for options in (wrong, ("--address", f"127.0.0.1:{free_port()}")):
        assert await completed("node", *options, "") == []
        assert await completed("explain", *options, "web") == []
    assert capfd.readouterr() == ("", "")


async def test_names_of_those_who_talk(
    harness: ControllerHarness, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEADLINE_ADDRESS", address)
    ends = End("default/web"), End("shop/db"), End("192.0.2.7")
    harness.source.traffic_graph = FakeCounts([edge(ends[0], ends[1]), edge(ends[2], ends[1])])
    assert await completed("traffic", "") == ["192.0.2.7", "default/web", "shop/db"]
    assert await completed("traffic", "w") == ["web"]
    assert await completed("traffic", "-n", "shop", "d") == ["db"]
