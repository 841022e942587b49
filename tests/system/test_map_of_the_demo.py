"""The demo's map, as a browser on this machine reaches it."""

import json
import re
import signal
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.system.daemons import eventually
from tests.system.demo import RUN, Run

pytestmark = pytest.mark.network


def read(url: str) -> bytes:
    with urlopen(url, timeout=60) as answer:  # noqa: S310  # always http
        content: bytes = answer.read()
        return content


def overview(address: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(read(f"{address}api/overview"))
    return found


@pytest.mark.parametrize("local", [True, False], ids=["local", "lab"])
def test_it_is_there_until_the_demo_is_interrupted(tmp_path: Path, local: bool) -> None:
    run = Run([*RUN, "--keep", *(["--local"] if local else [])], tmp_path)
    try:
        said = eventually(
            lambda: run.out, lambda out: "the map, while this runs: " in out, "the address is told"
        )
        found = re.search(r"http://127\.0\.0\.1:[0-9]+/", said)
        assert found is not None
        assert b"<title>" in read(found[0])
        shown = eventually(
            lambda: overview(found[0]),
            lambda answer: any(each["online"] for each in answer["nodes"]),
            "a board is shown",
        )
        assert shown["cluster"] == "demo"
        run.send_to_group(signal.SIGINT)
        assert run.wait() in (0, 130)
        assert "Traceback" not in run.err
        assert run.left_over() == []
    finally:
        run.end()
