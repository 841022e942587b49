"""`make run`: what somebody starts who wants to change the controller."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.system.daemons import clean_environ, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

REPOSITORY = Path(__file__).parents[2]


def overview(page: str) -> dict[str, Any]:
    with urlopen(f"http://{page}/api/overview", timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def test_the_map_shows_boards_that_differ_and_what_their_links_can_do() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.run"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env=clean_environ() | {"PYTHONUNBUFFERED": "1"},
    ) as run:
        try:
            assert run.stdout is not None
            said = {}
            while "the log" not in said:
                name, _, value = run.stdout.readline().partition(":")
                assert name, "it ended"
                said[name] = value.strip()
            shown = eventually(
                lambda: overview(said["the map"].removeprefix("http://")),
                lambda found: (
                    any(link["bandwidth_mbps"] for link in found["links"])
                    and len([node for node in found["nodes"] if node["cpu_percent"]]) == 20
                    and sum(len(node["pods"]) for node in found["nodes"]) == 40
                ),
                "boards report, pods are placed, and a link's bandwidth is measured",
            )
            log = Path(said["the log"].removeprefix("tail -f ")).read_text()
        finally:
            run.send_signal(signal.SIGINT)
            code = run.wait(60)
    assert code == 0
    assert len({round(node["cpu_percent"]) for node in shown["nodes"]}) > 10
    measured = [link for link in shown["links"] if link["source"] == "measured"]
    assert len(measured) >= 20
    assert len({link["rtt_ms"] for link in measured}) > 10
    assert {node["online"] for node in shown["nodes"]} == {True}
    assert [line for line in log.splitlines() if not line.startswith("INFO ")] == []
