"""The map of a recording in a real Chromium, by the command itself."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from leadline_controller.framework.ports import Relisted
from leadline_controller.history.recorded import Changed, Entry
from leadline_controller.history.recording_files import write_recording
from playwright.sync_api import Browser, Page, expect

from tests.controller.history.recorded_values import story
from tests.web.browser import AXE, DESKTOP, PATIENCE_MS, PHONE, page_of

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
expect.set_options(timeout=PATIENCE_MS)

HOURS = "from 14 Nov 2023, 22:13 to 14 Nov 2023, 23:43"
HOSTILE = "<img src=x onerror=alert(1)>"


@contextmanager
def served(path: Path) -> Iterator[str]:
    """The address that `leadline map` prints."""
    argv = [sys.executable, "-m", "leadline_controller.cli", "map", str(path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith(f"{path} is shown at http://127.0.0.1:")
            yield line.split(" at ")[1].split("/ ")[0]
        finally:
            process.send_signal(signal.SIGINT)
            rest = process.communicate()[0]
    assert (process.returncode, rest) == (0, "")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """90 minutes with a board of a hostile name, of which a part is missing."""
    told = story(90)
    for at, (at_s, what) in enumerate(told):
        if isinstance(what, Changed) and isinstance(what.change, Relisted):
            nodes = (*what.change.nodes, replace(what.change.nodes[0], name=HOSTILE))
            told[at] = Entry(at_s, Changed(replace(what.change, nodes=nodes)))
    path = tmp_path / "told.recording"
    write_recording(path, told)
    return path


def slide(page: Page, minute: int) -> None:
    """Move the slider to so many minutes after its begin."""
    page.evaluate(
        """(minute) => {
            const slider = document.getElementById("slider");
            slider.value = Number(slider.min) + minute;
            slider.dispatchEvent(new Event("input"));
        }""",
        minute,
    )


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=str)
def test_the_slider_goes_through_the_recorded_hours(
    browser: Browser, recording: Path, size: tuple[int, int]
) -> None:
    with served(recording) as address, page_of(browser, size) as (page, errors):
        page.goto(f"{address}/")
        page.wait_for_selector("#state[data-state=recording]")
        expect(page.locator("#state")).to_have_text("recording")
        expect(page.locator("#recorded")).to_contain_text(f"This is a recording, {HOURS}.")
        expect(page.locator("#recorded")).to_contain_text("entries that are missing: 1")
        expect(page.locator("#shown")).to_have_text("14 Nov 2023, 23:43, the end")
        board = page.locator("#boards tbody tr").filter(has=page.get_by_text("a", exact=True))
        expect(board).to_contain_text("99 %")
        slide(page, 5)
        expect(page.locator("#shown")).to_have_text("14 Nov 2023, 22:19")
        expect(board).to_contain_text("16 %")
        expect(board).to_contain_text("reported")
        slide(page, 60)
        expect(page.locator("#shown")).to_have_text("14 Nov 2023, 23:14")
        expect(board).to_contain_text("71 %")
        expect(page.locator("#past-note")).to_contain_text("at the end of the recording")
        expect(page.locator("#boards")).to_contain_text(HOSTILE)
        assert "live" not in page.inner_text("body").lower()
        page.evaluate(AXE.read_text())
        found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
        assert [
            x["id"] for x in found["violations"] if x["impact"] in ("serious", "critical")
        ] == []
        assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
        page.locator("#live").click()
        expect(board).to_contain_text("99 %")
        page.goto(f"{address}/#/decisions/default%2Fp3")
        expect(page.locator("#past-note")).to_contain_text("has no scores")
        assert errors == []


def test_it_says_that_it_has_no_traffic(browser: Browser, recording: Path) -> None:
    with served(recording) as address, page_of(browser) as (page, errors):
        page.goto(f"{address}/")
        page.wait_for_selector("#state[data-state=recording]")
        page.select_option("#map-colour", "traffic")
        expect(page.locator("#traffic-note")).to_have_text("A recording has no traffic.")
        page.goto(f"{address}/#/boards/a")
        expect(page.locator("#board-traffic-said")).to_have_text("A recording has no traffic.")
        assert errors == []
