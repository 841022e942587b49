"""The map's layer of traffic in a real Chromium, before a server with made-up answers."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.browser import AXE, DESKTOP, PATIENCE_MS, PHONE, PIXELS, TRAFFIC_DRAWN, go, page_of
from tests.web.canned import Cluster, served

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
expect.set_options(timeout=PATIENCE_MS)

UNKNOWN = "\u2013"  # the page's dash
HOSTILE = "<img src=x onerror=alert(1)>"


def choose(page: Page, address: str) -> None:
    """Look at the layer."""
    go(page, address)
    page.select_option("#map-colour", "traffic")
    page.wait_for_function(TRAFFIC_DRAWN)


def column(page: Page, number: int, table: str = "traffic") -> list[str]:
    """The cells of a column, from 1 on."""
    return page.locator(f"#{table} tbody tr > :nth-child({number})").all_text_contents()


@pytest.mark.parametrize(
    ("size", "dark"), [(DESKTOP, False), (DESKTOP, True), (PHONE, False)], ids=str
)
def test_the_layer_and_its_tables_are_accessible_and_fit(
    browser: Browser, size: tuple[int, int], dark: bool
) -> None:
    with served(Cluster(12)) as server, page_of(browser, size, dark) as (page, errors):
        choose(page, server.address)
        expect(page.locator("#map-summary")).to_contain_text(
            f"{len(server.cluster.traffic()['lines'])} links shown"
        )
        for view in ("#/", "#/boards/attic-3"):
            page.goto(f"{server.address}/{view}")
            if view == "#/":
                page.locator("#traffic-details summary").click()
                expect(page.locator("#traffic tbody tr")).to_have_count(12)
            else:
                expect(page.locator("#board-traffic-said")).to_contain_text("12 boards count")
            page.evaluate(AXE.read_text())
            found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
            grave = [
                (each["id"], [node["html"] for node in each["nodes"]][:3])
                for each in found["violations"]
                if each["impact"] in ("serious", "critical")
            ]
            assert grave == [], view
            wide = "() => document.documentElement.scrollWidth - window.innerWidth"
            assert page.evaluate(wide) <= 0, view
        assert errors == []


def test_lines_show_what_is_talked_and_the_table_sorts_and_filters(browser: Browser) -> None:
    cluster = Cluster(4)
    for node in cluster.nodes:
        node |= {"notes": [], "schedulable": True, "bandwidth_mbps": 940.0}
    ends = {"source_nodes": [["attic-1", 1]], "destination_nodes": [["attic-3", 1]]}
    (busy,) = [each for each in cluster.edges if each["destination"].endswith("/search")]
    busy |= {**ends, "share": 0.9}
    cluster.edges = [busy]
    with served(cluster) as server, page_of(browser) as (page, errors):
        choose(page, server.address)
        # The link and both its boards have the colour of 80 % and more; the other two that of none.
        expect(page.locator("#count-worst")).to_have_text("2 with 80 % of a link taken")
        page.wait_for_function(f"() => ({PIXELS})('--level-0') > 300")
        page.select_option("#map-colour", "bandwidth")
        expect(page.locator("#traffic-note")).to_be_hidden()
        page.wait_for_function(f"() => ({PIXELS})('--level-0') === 0")

        page.locator("#traffic-details summary").click()
        expect(page.locator("#traffic tbody tr")).to_have_count(1)
        cluster.edges = Cluster(4).edges
        page.goto(f"{server.address}/#/pairs")
        page.goto(f"{server.address}/#/")
        expect(page.locator("#traffic tbody tr")).to_have_count(12)
        page.get_by_role("button", name="Mbit/s").click()
        speeds = [float(re.split("[, ]", each)[0]) for each in column(page, 3)]
        assert speeds == sorted(speeds, reverse=True)
        page.fill("[data-filters=traffic]", "one end")
        assert column(page, 1) == ["192.0.2.7"]
        page.fill("[data-filters=traffic]", "declared")
        assert column(page, 2) == ["shop-0/audit"]
        assert column(page, 7) == [UNKNOWN]

        name = cluster.edges[0]["source_nodes"][0][0]
        own = cluster.board(name) or {}
        page.goto(f"{server.address}/#/boards/{name}")
        expect(page.locator("#board-traffic tbody tr")).to_have_count(len(own["traffic"]["edges"]))
        assert "192.0.2.7" in column(page, 1, "board-traffic")
        assert errors == []


def test_where_nobody_counts_the_page_says_what_to_do(browser: Browser) -> None:
    cluster = Cluster(4)
    cluster.counts = False
    with served(cluster) as server, page_of(browser) as (page, errors):
        choose(page, server.address)
        expect(page.locator("#traffic-note")).to_have_text(
            "No board counts its connections: set agent_flows in the inventory, see "
            "docs/traffic.md."
        )
        page.goto(f"{server.address}/#/boards/attic-3")
        expect(page.locator("#board-traffic-said")).to_contain_text("No board counts")
        expect(page.locator("#board-traffic")).to_contain_text("Nobody talks to anybody")
        assert errors == []


def test_of_400_boards_the_largest_are_shown_and_the_page_says_so(browser: Browser) -> None:
    with served(Cluster(400)) as server, page_of(browser) as (page, errors):
        choose(page, server.address)
        expect(page.locator("#traffic-note")).to_contain_text(
            "The 300 largest of 480 pairs are shown."
        )
        expect(page.locator("#map-summary")).to_contain_text("300 links shown")
        assert errors == []


def test_hostile_names_of_workloads_are_text(browser: Browser) -> None:
    cluster = Cluster(2)
    ends = {"source_nodes": [["attic-1", 1]], "destination_nodes": [["attic-2", 1]]}
    names = {"source": HOSTILE, "destination": HOSTILE, "best_node": HOSTILE}
    cluster.edges = [cluster.edges[0] | names | ends]
    with served(cluster) as server, page_of(browser) as (page, errors):
        choose(page, server.address)
        page.locator("#traffic-details summary").click()
        expect(page.locator("#traffic tbody th")).to_have_text(HOSTILE)
        box = page.locator("#map").bounding_box()
        assert box
        # Between the two boards is their line.
        page.mouse.move(box["x"] + box["width"] / 2 - 3, box["y"] + box["height"] / 2)
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        expect(page.locator("#map strong")).to_have_text(re.compile("^attic-1 . attic-2$"))
        expect(page.locator("#map")).to_contain_text(HOSTILE)
        assert page.locator("body img").count() == 0
        assert errors == []
