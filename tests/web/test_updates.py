"""How the page of the map keeps up: with changes, restarts of the controller, and the past."""

from __future__ import annotations

import time
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.browser import PATIENCE_MS, counts, go, page_of
from tests.web.canned import NOW_UNIX_S, Canned, Cluster, served

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
expect.set_options(timeout=PATIENCE_MS)


@pytest.mark.smoke
def test_changes_arrive_by_themselves(browser: Browser) -> None:
    cluster = Cluster(4)
    with served(cluster) as server, page_of(browser) as (page, errors):
        go(page, server.address)
        row = page.locator("#boards tr", has_text="attic-2")
        throttled = cluster.nodes[1] | {"bandwidth_mbps": 3.2, "bandwidth_kind": "exact"}
        server.send("overview", {"nodes": [throttled], "gone_nodes": ["attic-3"]})
        expect(row).to_contain_text("3.20 Mbit/s")
        expect(page.locator("#map-summary")).to_contain_text("3 boards")
        expect(page.locator("#counts")).to_contain_text("2 below 10 Mbit/s")
        # A short test finds a low bound on a fast link too, so a bound is no slow link.
        server.send("overview", {"nodes": [throttled | {"bandwidth_kind": "at-least"}]})
        expect(row).to_contain_text("≥ 3.20 Mbit/s")
        expect(page.locator("#counts")).to_contain_text("1 below 10 Mbit/s")
        server.send("decision", cluster.decision("new", "attic-4", NOW_UNIX_S))
        expect(page.locator("#decision-list a").first).to_have_text("default/new → attic-4")
        expect(page.locator("#announce")).to_have_text("Decision: default/new to attic-4")
        # The same decision again replaces the first.
        failed = cluster.decision("new", None, NOW_UNIX_S) | {"outcome": "failed: conflict"}
        server.send("decision", failed)
        expect(page.locator("#decision-list a").first).to_have_text("default/new → no board")
        assert page.locator("#decision-list a", has_text="default/new ").count() == 1
        # What was missed is loaded again.
        cluster.nodes[0]["cpu_percent"] = 77.0
        server.send("reload", {"why": "too long ago"})
        expect(page.locator("#boards tr", has_text="attic-1")).to_contain_text("77 %")
        assert errors == []


def test_a_restart_of_the_controller_is_survived(browser: Browser) -> None:
    cluster = Cluster(4)
    with served(cluster) as server, page_of(browser) as (page, _):
        go(page, server.address)
        server.stop()
        page.wait_for_selector("#state[data-state=waiting]")
        expect(page.locator("#problem")).to_contain_text("the controller is starting")
        assert page.locator("#boards tbody tr").count() == 4  # what was known stays in sight
        cluster.nodes.append(cluster.nodes[0] | {"name": "newcomer"})
        server.start_again()
        page.wait_for_selector("#state[data-state=live]")
        expect(page.locator("#boards")).to_contain_text("newcomer")
        expect(page.locator("#problem")).to_be_hidden()
        assert any("after=run-2" in path for path in server.requested)
        server.send("decision", cluster.decision("after", "newcomer", NOW_UNIX_S))
        expect(page.locator("#decision-list a").first).to_have_text("default/after → newcomer")


def until_asked(page: Page, server: Canned, path: str, times: int) -> None:
    """Wait until the page has asked for this so many times."""
    for _ in range(PATIENCE_MS // 100):
        if server.requested.count(path) >= times:
            return
        page.wait_for_timeout(100)
    pytest.fail(f"{path} was asked for {server.requested.count(path)} times, not {times}")


def test_a_controller_that_is_not_heard_any_more_is_not_live(browser: Browser) -> None:
    """A power cut ends no connection."""
    with served(Cluster(4)) as server, page_of(browser) as (page, errors):
        page.clock.install()
        go(page, server.address)
        for _ in range(3):
            page.clock.fast_forward(30_000)
            server.send("alive", {})
            page.wait_for_timeout(500)
        assert server.requested.count("/api/overview") == 1
        page.clock.fast_forward(60_000)
        until_asked(page, server, "/api/overview", 2)
        assert errors == []


def test_a_decision_during_the_load_is_not_missed(browser: Browser) -> None:
    """It comes after the list, had the page asked for both at once, and before the stream."""

    class Deciding(Cluster):
        def overview(self, unix_s: float | None) -> dict[str, Any]:
            answer = super().overview(unix_s)
            for _ in range(10):
                if any(path.startswith("/api/decisions") for path in server.requested):
                    break
                time.sleep(0.1)
            time.sleep(0.3)
            self.decisions.insert(0, self.decision("meanwhile", "attic-1", NOW_UNIX_S))
            return answer

    with served(Deciding(4)) as server, page_of(browser) as (page, errors):
        go(page, server.address)
        expect(page.locator("#decision-list a").first).to_have_text("default/meanwhile → attic-1")
        assert errors == []


def test_a_board_stays_in_sight_while_the_controller_restarts(browser: Browser) -> None:
    with served(Cluster(4)) as server, page_of(browser) as (page, _):
        go(page, server.address, "#/boards/attic-2")
        page.wait_for_selector("#board-charts canvas")
        server.stop()
        page.wait_for_selector("#state[data-state=waiting]")
        with page.expect_response(lambda answer: "/api/history" in answer.url) as failed:
            page.select_option("#board-span", "3600")
        assert failed.value.status == 503
        failed.value.finished()
        page.wait_for_timeout(300)
        assert page.locator("#board-charts canvas").first.is_visible()
        expect(page.locator("#board-facts")).to_contain_text("Raspberry")


def test_what_is_known_of_an_agent_is_said_and_no_more(browser: Browser) -> None:
    cluster = Cluster(4)
    cluster.nodes[1] |= {"agent": "silent", "online": False, "notes": ["no fresh report"]}
    unheard = {"notes": ["the broker does not answer", "not ready"], "ready": False}
    cluster.nodes[2] |= {"agent": "unknown", "online": None, **unheard}
    cluster.links[0] |= {"source": "bounded", "rtt_ms": 12.1, "error_ms": 12.1}
    with served(cluster) as server, page_of(browser) as (page, errors):
        go(page, server.address)
        state = page.locator("#boards tr", has_text="attic-2").locator("td").first
        expect(state).to_have_text("silent, no fresh report")
        state = page.locator("#boards tr", has_text="attic-3").locator("td").first
        expect(state).to_have_text("unknown, not ready, the broker does not answer")
        expect(page.locator("#counts")).to_contain_text("1 offline or silent")
        page.locator("#links-details summary").click()
        expect(page.locator("#links")).to_contain_text("≤ 12.1 ms")
        assert errors == []


def test_the_slider_shows_the_past(browser: Browser) -> None:
    cluster = Cluster(4)
    with served(cluster) as server, page_of(browser) as (page, errors):
        go(page, server.address)
        slider = page.locator("#slider")
        assert slider.get_attribute("aria-valuetext") == "now, live"
        slider.focus()
        for _ in range(30):
            page.keyboard.press("ArrowLeft")
        expect(page.locator("#boards tr", has_text="attic-2")).to_contain_text("1 %")
        state = page.locator("#boards tr", has_text="attic-2").locator("td").first
        expect(state).to_have_text("reported, takes no pods, throttled")
        for words in ("1 with a warning", "2 taking no pods"):
            expect(page.locator("#counts")).to_contain_text(words)
        expect(page.locator("#past-note")).to_contain_text("Of links only the round trips")
        # The keys may take longer than the slider waits.
        at_end = f"/api/overview?unix_s={NOW_UNIX_S - 29 * 60:.0f}"
        while at_end not in server.requested:
            page.wait_for_timeout(50)
        assert slider.get_attribute("aria-valuetext") != "now, live"
        # Changes of the present wait until the present is shown.
        server.send("overview", {"nodes": [cluster.nodes[1] | {"cpu_percent": 66.0}]})
        page.wait_for_function("() => leadline.counts().boards === 4")
        expect(page.locator("#boards tr", has_text="attic-2")).not_to_contain_text("66 %")
        # A board's charts end at the time shown.
        page.goto(f"{server.address}/#/boards/attic-2")
        page.wait_for_selector("#board-charts canvas")
        assert any("until_unix_s=" in path for path in server.requested)
        page.goto(f"{server.address}/#/pairs")
        expect(page.locator("#past-note")).to_contain_text("as they are now")
        page.goto(f"{server.address}/#/")
        slider.focus()
        # Placements of long ago may be incomplete, and the page says so.
        page.keyboard.press("Home")
        expect(page.locator("#problem")).to_contain_text("may be incomplete")
        expect(page.locator("#problem")).to_contain_text("not known which boards had a warning")
        expect(page.locator("#decision-list")).to_have_text("No earlier decision is kept.")
        page.locator("#live").click()
        expect(page.locator("#boards tr", has_text="attic-2")).to_contain_text("66 %")
        expect(page.locator("#problem")).to_be_hidden()
        expect(page.locator("#past-note")).to_be_hidden()
        assert errors == []


def test_a_board_that_is_new_is_shown_in_a_span_that_it_fills(browser: Browser) -> None:
    cluster = Cluster(4)
    cluster.measured_s = 1500.0
    with served(cluster) as server, page_of(browser) as (page, errors):
        go(page, server.address, "#/boards/attic-2")
        expect(page.locator("#board-span")).to_have_value("3600")
        page.locator("#board-charts summary").first.click()
        expect(page.locator("#board-charts table").first.locator("tbody tr")).to_have_count(100)
        # What a person chooses stays.
        page.locator("#board-span").select_option("86400")
        page.goto(f"{server.address}/#/boards/attic-3")
        page.wait_for_function(
            "() => document.querySelector('#board-title').textContent === 'attic-3'"
        )
        expect(page.locator("#board-span")).to_have_value("86400")
        assert errors == []


def test_updates_of_300_boards_leave_nothing_behind(browser: Browser) -> None:
    """10 a second, and more decisions than are kept."""
    cluster = Cluster(300)
    with served(cluster) as server, page_of(browser) as (page, errors):
        go(page, server.address)

        def update(number: int) -> None:
            changed: list[dict[str, Any]] = []
            for node in cluster.random.sample(cluster.nodes, 30):
                node["cpu_percent"] = cluster.random.uniform(0, 100)
                changed.append(node)
            links = cluster.random.sample(cluster.links, 60)
            server.send("overview", {"nodes": changed, "links": links})
            for k in range(10):
                pod = f"burst-{number}-{k}"
                server.send("decision", cluster.decision(pod, "attic-1", NOW_UNIX_S + number))

        update(-1)
        expect(page.locator("#decision-list a").first).to_contain_text("default/burst--1-9")
        before = counts(page)
        for number in range(50):
            update(number)
            page.wait_for_timeout(100)
        expect(page.locator("#decision-list a").first).to_contain_text("default/burst-49-9")
        after = counts(page)
        assert after["decisions"] == 200
        assert (after["boards"], after["links"]) == (before["boards"], before["links"])
        assert after["charts"] == before["charts"] == 1
        assert after["elements"] <= before["elements"] + 100
        page.goto(f"{server.address}/#/decisions")
        page.locator("#decisions-each").check()
        expect(page.locator("#decision-table tbody tr")).to_have_count(200)
        assert errors == []


def test_views_reuse_their_charts(browser: Browser) -> None:
    with served(Cluster(4)) as server, page_of(browser) as (page, errors):
        go(page, server.address)
        seen = []
        for _ in range(3):
            for name in ("attic-2", "attic-3"):
                page.goto(f"{server.address}/#/boards/{name}")
                page.wait_for_selector(
                    f"#board-links td:has-text('ms'), #board-title:text('{name}')"
                )
                page.wait_for_selector("#board-charts canvas")
            page.goto(f"{server.address}/#/pairs")
            page.wait_for_selector("#pairs canvas")
            page.goto(f"{server.address}/#/")
            seen.append(counts(page)["charts"])
        assert seen[0] <= 8
        assert seen[-1] <= 8
        assert errors == []
