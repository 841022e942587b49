"""The page of the map in a real Chromium, before a server with made-up answers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.browser import AXE, DESKTOP, PATIENCE_MS, PHONE, PIXELS, go, page_of
from tests.web.canned import NOW_UNIX_S, Cluster, served

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
expect.set_options(timeout=PATIENCE_MS)

VIEWS = ("", "#/pairs", "#/boards/attic-2", "#/decisions", "#/decisions/default%2Fweb-1")
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    '"><script>alert(2)</script>',
    "__proto__",
    "constructor",
    "javascript:alert(3)",
    "a/../b?c#d%2F%zz",
    "{{7*7}}{a|b}\n\t\x01 ${x}",
    "x" * 253,
]
KEYS_AT_MOST = 200
UNFOLD = """() => {
    const folded = document.querySelector(".view:not([hidden]) details");
    if (folded) folded.open = true;
}"""


@pytest.mark.parametrize(
    ("size", "dark"), [(DESKTOP, False), (DESKTOP, True), (PHONE, False)], ids=str
)
def test_every_view_is_accessible_and_fits(
    browser: Browser, size: tuple[int, int], dark: bool
) -> None:
    with served(Cluster(4)) as server, page_of(browser, size, dark) as (page, errors):
        for view in VIEWS:
            go(page, server.address, view)
            page.wait_for_selector(".view:not([hidden]) td, .view:not([hidden]) canvas")
            # The first of tables that fold: axe takes a second for a thousand cells.
            page.evaluate(UNFOLD)
            page.evaluate(AXE.read_text())
            found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
            grave = [
                (each["id"], each["impact"], [node["html"] for node in each["nodes"]][:3])
                for each in found["violations"]
                if each["impact"] in ("serious", "critical")
            ]
            assert grave == [], view
            assert len(found["passes"]) > 10
            wide = "() => document.documentElement.scrollWidth - window.innerWidth"
            assert page.evaluate(wide) <= 0, view
        assert page.evaluate("() => document.documentElement.dataset.theme") == (
            "dark" if dark else "light"
        )
        assert errors == []


def test_hostile_names_are_text_and_do_nothing(browser: Browser) -> None:
    cluster = Cluster(len(HOSTILE), names=HOSTILE)
    for node, name in zip(cluster.nodes, HOSTILE, strict=True):
        node["notes"] = [name]
        node["pods"] = [{"namespace": name, "name": name, "ours": True}]
        cluster.decisions.append(
            cluster.decision("x", name, NOW_UNIX_S)
            | {"id": f"{name}/{name}", "why": name, "strategy": name, "outcome": name}
        )
    with served(cluster) as server, page_of(browser) as (page, errors):
        go(page, server.address)
        shown = page.locator("#boards tbody th").all_text_contents()
        assert sorted(shown) == sorted(HOSTILE)
        assert any(name in page.inner_text("#decision-list") for name in HOSTILE[:1])
        for name in HOSTILE:
            page.locator("#boards tbody th a").filter(
                has_text=name if len(name) < 50 else "xxxx"
            ).first.click()
            page.wait_for_selector("#view-board:not([hidden])")
            title = page.locator("#board-title").text_content()
            assert title in HOSTILE
            expect(page.locator("#board-facts")).to_contain_text("Raspberry")
            page.locator("#board-pods a").first.click()
            page.wait_for_selector("#view-decision:not([hidden])")
            expect(page.locator("#decision-why")).to_have_text(title, use_inner_text=False)
            page.goto(f"{server.address}/#/")
        page.goto(f"{server.address}/#/pairs")
        expect(page.locator("#pairs-board option")).to_have_count(len(HOSTILE))
        assert page.locator("body img, body script, body iframe").count() == 0
        assert errors == []


def test_a_hostile_name_is_text_in_the_tooltips(browser: Browser) -> None:
    """One board is drawn in the middle of the map, and two make a heat map of four quarters."""
    name = HOSTILE[0]
    with served(Cluster(1, names=[name])) as server, page_of(browser) as (page, errors):
        go(page, server.address)
        box = page.locator("#map").bounding_box()
        assert box
        page.mouse.move(box["x"] + box["width"] / 2 - 3, box["y"] + box["height"] / 2)
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        expect(page.locator("#map strong")).to_have_text(name)
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        expect(page.locator("#board-title")).to_have_text(name)
        assert errors == []
    with served(Cluster(2, names=[name, name + "2"])) as server, page_of(browser) as (page, errors):
        go(page, server.address, "#/pairs")
        expect(page.locator("#pairs-summary")).to_contain_text("2 boards")
        box = page.locator("#pairs").bounding_box()
        assert box
        page.mouse.move(box["x"] + box["width"] * 0.8 - 3, box["y"] + box["height"] * 0.35)
        page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + box["height"] * 0.35)
        expect(page.locator("#pairs strong")).to_contain_text(name)
        assert page.locator("body img").count() == 0
        assert errors == []


def focused(page: Page) -> str:
    found: str = page.evaluate(
        """() => {
            const e = document.activeElement;
            const list = e.closest('#decision-list, #boards, nav');
            return list ? (list.id || 'nav') + ' ' + e.textContent : e.id || e.className;
        }"""
    )
    return found


def test_the_keyboard_reaches_everything(browser: Browser) -> None:
    with served(Cluster(4)) as server, page_of(browser) as (page, errors):
        go(page, server.address)
        reached: list[str] = []
        for _ in range(KEYS_AT_MOST):
            page.keyboard.press("Tab")
            if (place := focused(page)) in reached:
                break
            reached.append(place)
            outline = "() => getComputedStyle(document.activeElement).outlineStyle"
            assert page.evaluate(outline) != "none", place
        assert reached[0] == "skip"
        for place in ("nav Pairs", "theme", "slider", "map-reset", "find", "boards attic-3"):
            assert place in reached
        assert any(place.startswith("decision-list default/web-0") for place in reached)
        # The skip link leads past the header.
        page.locator(".skip").focus()
        page.keyboard.press("Enter")
        assert focused(page) == "main"
        # A board and a decision open without a mouse, and Back leads back.
        page.locator("#boards a", has_text="attic-3").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#board-title")).to_have_text("attic-3")
        assert focused(page) == "main"
        page.go_back()
        page.locator("#decision-list a", has_text="web-1 →").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#decision-title")).to_have_text("default/web-1")
        expect(page.locator("#decision-scores tbody th").first).to_have_text("attic-2 (chosen)")
        assert page.locator("#decision-scores thead th").all_text_contents() == [
            "Board", "Total", "Bandwidth", "Cpu", "Memory", "Age of values",
        ]  # fmt: skip
        expect(page.locator("#decision-rejected")).to_contain_text("NodeUnschedulable")
        # So does the switch of the theme, and it is remembered.
        page.locator("#theme").focus()
        page.keyboard.press("Enter")
        assert page.evaluate("() => document.documentElement.dataset.theme") == "dark"
        page.reload()
        assert page.evaluate("() => document.documentElement.dataset.theme") == "dark"
        assert errors == []


@pytest.mark.parametrize(
    ("measure", "value", "legend", "worst"),
    [
        ("bandwidth", {"bandwidth_mbps": 3.0}, "500 and more", "2 below 10 Mbit/s"),
        ("rtt", {}, "1 to 5", "2 with 100 ms or more"),
        ("cpu", {"cpu_percent": 80.0}, "20 to 40", "1 with 80 % CPU or more"),
        ("temperature", {"temperature_c": 91.0}, "below 50", "1 at 80 °C or more"),
        ("pods", {"pods_total": 30}, "10 to 30", "1 with 30 pods or more"),
        ("age", {"age_s": 4000.0}, "15 s to 1 min", "1 not heard for an hour"),
    ],
)
def test_the_colour_shows_what_was_chosen(
    browser: Browser, measure: str, value: dict[str, Any], legend: str, worst: str
) -> None:
    cluster = Cluster(4)
    for node in cluster.nodes:
        node["cpu_percent"] = node["temperature_c"] = 5.0
    cluster.nodes[1] |= value
    cluster.links = [cluster.link(0, 3) | {"rtt_ms": 100.0, "source": "measured"}]
    with served(cluster) as server, page_of(browser) as (page, errors):
        go(page, server.address)
        page.select_option("#map-colour", measure)
        expect(page.locator("#legend")).to_contain_text(legend)
        expect(page.locator("#counts")).to_contain_text(worst)
        assert errors == []


def test_a_click_on_a_count_shows_its_boards_and_find_marks_them(browser: Browser) -> None:
    with served(Cluster(40)) as server, page_of(browser) as (page, errors):
        go(page, server.address)
        rows, count = page.locator("#boards tbody th"), page.locator("#count-away")
        count.click()
        expect(count).to_have_attribute("aria-pressed", "true")
        expect(rows).to_have_text(["garage-6"])
        expect(page.locator("#boards-count")).to_have_text("1 of 40")
        marked = f"() => ({PIXELS})('--accent') > 200"
        page.wait_for_function(marked)
        # Who returns leaves the count, which stays until it is released.
        server.send("overview", {"nodes": [server.cluster.nodes[5] | {"online": True}]})
        expect(count).to_have_text("0 offline or silent")
        expect(rows).to_have_count(0)
        count.click()
        expect(count).to_be_hidden()
        expect(rows).to_have_count(40)
        page.wait_for_function(f"() => ({PIXELS})('--accent') < 50")
        page.locator("#find").fill("ATTIC-1")
        expect(rows).to_have_count(5)  # attic-1 and 10, 13, 16, 19
        page.wait_for_function(marked)
        page.locator("#find").fill("takes no")
        expect(rows).to_have_text(["attic-1"])
        assert errors == []


def test_tables_sort_by_number_and_natural_name_and_filter(browser: Browser) -> None:
    cluster = Cluster(
        12, names=[f"n{number}" for number in (10, 9, 1, 2, 12, 11, 3, 8, 4, 7, 6, 5)]
    )
    for number, node in enumerate(cluster.nodes):
        node["cpu_percent"] = None if number == 4 else (number * 37) % 101
    with served(cluster) as server, page_of(browser) as (page, errors):
        go(page, server.address)
        rows, cpu = page.locator("#boards tbody th"), page.locator("#boards thead th").nth(3)
        by_name = [f"n{number}" for number in range(1, 13)]
        known = [node for node in cluster.nodes if node["cpu_percent"] is not None]
        by_cpu = [node["name"] for node in sorted(known, key=lambda node: node["cpu_percent"])]
        for order, names in (
            ("none", by_name),
            ("descending", [*by_cpu[::-1], "n12"]),
            ("ascending", [*by_cpu, "n12"]),
            ("none", by_name),
        ):
            expect(cpu).to_have_attribute("aria-sort", order)
            expect(rows).to_have_text(names)
            cpu.locator("button").click()
        page.locator("#boards thead button").first.click()
        # A change keeps the order, and finds its row.
        server.send("overview", {"nodes": [cluster.nodes[0] | {"cpu_percent": 99.6}]})
        expect(page.locator("#boards tr", has_text="n10")).to_contain_text("100 %")
        expect(rows).to_have_text(by_name)
        page.locator("#links-details summary").click()
        page.locator("[data-filters=links]").fill("n12")
        expect(page.locator("#links tbody tr", has_text="n12")).not_to_have_count(0)
        expect(page.locator("#links tbody tr", has_not_text="n12")).to_have_count(0)
        page.locator("[data-filters=links]").fill("nowhere")
        expect(page.locator("#links tbody")).to_have_text("No row has this text")
        assert errors == []


def test_a_table_of_too_many_rows_says_so(browser: Browser) -> None:
    cluster = Cluster(4)
    cluster.nodes = [
        cluster.nodes[0] | {"name": f"n{number}", "pods": []} for number in range(1003)
    ]
    cluster.links = []
    with served(cluster) as server, page_of(browser) as (page, errors):
        go(page, server.address)
        expect(page.locator("#boards tbody tr")).to_have_count(1000)
        expect(page.locator("#boards tfoot")).to_have_text("and 3 more: filter the table")
        page.locator("#find").fill("n100")
        expect(page.locator("#boards tbody tr")).to_have_count(4)
        expect(page.locator("#boards tfoot")).to_have_count(0)
        assert errors == []


def test_decisions_are_grouped_by_workload_and_reason(browser: Browser) -> None:
    cluster = Cluster(4)
    names = [f"web-6d4cf56db6-{end}" for end in ("b7xkq", "zz2n9", "v5w8c")]
    names += ["db-0", "db-1", "backup-28391234-x2x4c", "lonely"]
    cluster.decisions = [
        cluster.decision(name, f"attic-{1 + number % 2}", NOW_UNIX_S - number)
        | {"why": f"best in bandwidth: {number + 91.5} Mbit/s"}
        for number, name in enumerate(names)
    ]
    cluster.decisions[4] |= {"node": None, "why": "no board fits", "outcome": "pending"}
    with served(cluster) as server, page_of(browser) as (page, errors):
        go(page, server.address)
        expect(page.locator("#decision-list li").first).to_contain_text("bound · the last of 3")
        expect(page.locator("#decision-list a").first).to_have_text(f"default/{names[0]} → attic-1")
        page.locator("[data-view=decisions]").click()
        rows = page.locator("#decision-table tbody tr")
        expect(rows.locator("th")).to_have_text(
            ["default/web", "default/db", "default/db", "default/backup", "default/lonely"]
        )
        cells = rows.first.locator("td").all_text_contents()
        assert cells[:3] == ["3 decisions", "attic-1 \xd72, attic-2", "bound \xd73"]
        assert cells[4] == "best in bandwidth: 91.5 Mbit/s"
        page.locator("[data-filters=decision-table]").fill("db-1")
        expect(rows).to_have_text("No row has this text")
        page.locator("#decisions-each").check()
        expect(rows.locator("th")).to_have_text("default/db-1")
        assert errors == []


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=str)
def test_a_legend_of_several_lines_covers_no_chart(browser: Browser, size: tuple[int, int]) -> None:
    names = [f"a-board-with-a-rather-long-name-{number}" for number in range(9)]
    with served(Cluster(9, names=names)) as server, page_of(browser, size) as (page, errors):
        go(page, server.address, f"#/boards/{names[3]}")
        figure = page.locator("#board-charts figure", has_text="Round trips, ms")
        expect(figure.locator(".legend li")).to_have_count(5)
        legend, canvas = (figure.locator(each).bounding_box() for each in (".legend", ".canvas"))
        assert legend is not None
        assert canvas is not None
        assert legend["height"] > 40
        assert legend["y"] + legend["height"] <= canvas["y"]
        assert errors == []


def test_on_a_phone_a_decision_has_its_reason(browser: Browser) -> None:
    with served(Cluster(4)) as server, page_of(browser, PHONE) as (page, errors):
        go(page, server.address, "#/decisions")
        reason = page.locator("#decision-table td", has_text="no board fits: 3 lack memory")
        expect(reason).to_be_in_viewport(ratio=1)
        assert errors == []


def test_a_cluster_without_boards_and_a_board_that_never_reported_are_described(
    browser: Browser,
) -> None:
    empty, silent = Cluster(1), Cluster(1)
    empty.nodes, empty.links, empty.edges, empty.decisions = [], [], [], []
    silent.nodes[0] |= {"agent": "unknown", "online": None, "age_s": None, "bandwidth_age_s": None}
    with served(empty) as server, page_of(browser) as (page, errors):
        go(page, server.address, "#/")
        expect(page.locator("#map-summary")).to_contain_text("no board yet")
        assert errors == []
    with served(silent) as server, page_of(browser) as (page, errors):
        go(page, server.address, f"#/boards/{silent.nodes[0]['name']}")
        facts = page.locator("#board-facts")
        expect(facts).to_contain_text("Raspberry")
        expect(facts).to_contain_text(re.compile("Last report\\s*\u2013"))
        expect(facts).not_to_contain_text("ago")
        assert errors == []


def test_a_time_that_cannot_be_shown_is_not_claimed(browser: Browser) -> None:
    with served(Cluster(4)) as server, page_of(browser) as (page, _):
        go(page, server.address)
        server.stop()
        slider = page.locator("#slider")
        slider.focus()
        for _ in range(30):
            page.keyboard.press("ArrowLeft")
        expect(page.locator("#problem")).to_contain_text("is not shown: the controller is starting")
        expect(slider).to_have_attribute("aria-valuetext", "now, live")


def drawn_near_the_lower_edge(page: Page) -> None:
    """Wait until the heat map's last rows are there: it is drawn in parts."""
    page.wait_for_function(
        """() => [...document.querySelectorAll('#pairs canvas')].some((canvas) => {
            const pixels = canvas.getContext('2d');
            const at = [canvas.width / 2, canvas.height - 20, 1, 1];
            return pixels.getImageData(...at).data[3] > 0;
        })""",
        polling=250,
    )


def test_pairs_of_300_boards_are_drawn_and_what_is_left_out_is_said(browser: Browser) -> None:
    with served(Cluster(310)) as server, page_of(browser) as (page, errors):
        go(page, server.address, "#/pairs")
        drawn_near_the_lower_edge(page)
        expect(page.locator("#pairs-summary")).to_contain_text("300 boards; pairs: ")
        page.locator("#pairs-details summary").click()
        page.select_option("#pairs-board", "attic-1")
        expect(page.locator("#pairs-table tbody tr")).to_have_count(299)
        expect(page.locator("#pairs-part")).to_contain_text("Only 300 of the 310 boards")
        page.select_option("#pairs-colour", "bandwidth")
        expect(page.locator("#pairs-legend")).to_contain_text("500 and more: ")
        row = page.locator("#pairs-table tr", has=page.get_by_text("cellar-2", exact=True))
        expect(row).to_contain_text("41.0 Mbit/s")
        page.select_option("#pairs-colour", "source")
        expect(page.locator("#pairs-legend")).to_contain_text("triangulated: ")
        assert page.locator("#pairs canvas").count() <= 2
        assert errors == []
