"""`make screenshots`: the pictures of docs/map and docs/comparing.md, of made-up clusters, so that
they are repeatable.

Run it after a change of the page and look at each picture. They are palette PNGs, to be small.
"""

import io
from pathlib import Path

from leadline_lab.replay.comparison import compare
from leadline_lab.replay.page import page as comparison_page
from PIL import Image
from playwright.sync_api import Browser, Page

from tests.lab.replay.synthetic import DACS, KUBE_DEFAULT, NETSCHED, outcomes
from tests.web.browser import PHONE, TRAFFIC_DRAWN, chromium, page_of, ready
from tests.web.canned import Canned, Cluster, served

FOLDER = Path(__file__).parents[2] / "docs" / "map"
BOARD, DECISION = "#/boards/cellar-5", "#/decisions/default%2Fweb-2"
TRAFFIC = "#/"  # with this layer
COLOURS = 160
WINDOW = (1120, 800)
COMPARISON = (1120, 1200)
# picture: (boards, view, window, dark)
PICTURES = {
    "map-4": (4, "", WINDOW, False),
    "map-40": (40, "", WINDOW, False),
    "map-40-dark": (40, "", WINDOW, True),
    "map-400": (400, "", WINDOW, False),
    "map-phone": (40, "", PHONE, True),
    "traffic-40": (40, TRAFFIC, WINDOW, False),
    "traffic-40-dark": (40, TRAFFIC, WINDOW, True),
    "pairs-4": (4, "#/pairs", WINDOW, False),
    "pairs-40": (40, "#/pairs", WINDOW, False),
    "pairs-400": (400, "#/pairs", WINDOW, True),
    "board": (40, BOARD, WINDOW, False),
    "board-phone": (40, BOARD, PHONE, False),
    "decision": (40, DECISION, WINDOW, False),
}


def main() -> None:
    """Draw all pictures."""
    FOLDER.mkdir(exist_ok=True)
    with chromium() as browser:
        for boards in sorted({each[0] for each in PICTURES.values()}):
            with served(Cluster(boards)) as server:
                for name, (size, view, window, dark) in PICTURES.items():
                    if size == boards:
                        _draw(browser, server, name, view, window, dark)
        given = outcomes([KUBE_DEFAULT, NETSCHED, DACS], pods=2000)
        with page_of(browser, COMPARISON) as (page, errors):
            page.set_content(comparison_page(compare(given), given))
            assert not errors, errors
            _save(page, FOLDER.parent / "comparing.png")


def _draw(
    browser: Browser, server: Canned, name: str, view: str, window: tuple[int, int], dark: bool
) -> None:
    with page_of(browser, window, dark) as (page, errors):
        page.goto(f"{server.address}/{view}")
        if view == TRAFFIC:
            ready(page)
            page.select_option("#map-colour", "traffic")
            page.wait_for_function(TRAFFIC_DRAWN)
        elif view:
            page.wait_for_selector("#state[data-state=live]")
            page.wait_for_selector(".view:not([hidden]) canvas, #decision-scores td")
        else:
            ready(page)
        wait_drawn(page)
        assert not errors, errors
        _save(page, FOLDER / f"{name}.png")


def _save(page: Page, file: Path) -> None:
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    # Rare colours count as well: one board may be red.
    kept = picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    kept.save(file, optimize=True)
    print(f"{file.name}: {file.stat().st_size // 1024} kB")


def wait_drawn(page: Page) -> None:
    """Wait until two looks at the page are the same: large pictures are drawn in parts."""
    before = b""
    while (now := page.screenshot()) != before:
        before = now
        page.wait_for_timeout(700)


if __name__ == "__main__":
    main()
