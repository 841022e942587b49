"""The map's page of 4, 40 and 400 boards in Chromium: how long its script runs, in ms.

Each view tells the browser's timeline with performance.measure how long it took to draw, canvases
included. `script` is all that ran until the map was seen, with the reading of its modules, by the
browser's own count. A made-up server answers.
"""

from collections.abc import Callable
from functools import partial
from statistics import median

from playwright.sync_api import Browser, CDPSession, Page

from tests.web.browser import chromium, page_of, ready
from tests.web.canned import Canned, Cluster, served

BOARDS = (4, 40, 400)
ROUNDS = 5
OBSERVE = """window.took = [];
new PerformanceObserver((list) => took.push(...list.getEntries().map((each) => each.duration)))
    .observe({type: "measure"});"""
Took = dict[str, list[float]]


def script_ms(browser: CDPSession) -> float:
    """What ran since the page was opened."""
    metrics = browser.send("Performance.getMetrics")["metrics"]
    seconds: float = next(each["value"] for each in metrics if each["name"] == "ScriptDuration")
    return seconds * 1000


def measured(browser: Browser, server: Canned, cluster: Cluster, took: Took) -> None:
    """One round: load the page and use it. took: gets the ms of each step."""
    with page_of(browser) as (page, _):
        page.add_init_script(OBSERVE)
        counters = page.context.new_cdp_session(page)
        counters.send("Performance.enable")
        page.goto(server.address)
        ready(page)
        _add(page, took, "map, first")
        took.setdefault("script", []).append(script_ms(counters))

        def step(name: str, act: Callable[[], object]) -> None:
            page.evaluate("took.length = 0")
            act()
            _add(page, took, name)

        for colour in ("cpu", "rtt", "bandwidth"):
            step("map, another colour", partial(page.select_option, "#map-colour", colour))
        tenth = cluster.nodes[: max(1, len(cluster.nodes) // 10)]
        away = [node | {"agent": "offline", "online": False} for node in tenth]
        step("map, a tenth offline", lambda: server.send("overview", {"nodes": away}))
        step("map, click on a count", lambda: page.locator("#count-away").click())
        step("map, a name typed", lambda: page.locator("#find").fill("1"))
        step("pairs", lambda: page.locator("[data-view=pairs]").click())
        step("pairs, bandwidth", lambda: page.select_option("#pairs-colour", "bandwidth"))
        step("decisions", lambda: page.locator("[data-view=decisions]").click())


def _add(page: Page, took: Took, name: str) -> None:
    page.wait_for_function("() => took.length > 0")
    took.setdefault(name, []).append(page.evaluate("Math.max(...took)"))


def main() -> None:
    """Print each step: the median of the rounds, and the most."""
    found: dict[int, Took] = {}
    with chromium() as browser:
        for boards in BOARDS:
            cluster = Cluster(boards)
            with served(cluster) as server:
                for _ in range(ROUNDS):
                    measured(browser, server, cluster, found.setdefault(boards, {}))
    print(f"{ROUNDS} rounds; ms: the median (the most)")
    print(f"{'':24}" + "".join(f"{boards:>9} boards" for boards in BOARDS))
    for name in found[BOARDS[0]]:
        each = [found[boards][name] for boards in BOARDS]
        print(f"{name:24}" + "".join(f"{f'{median(x):.0f} ({max(x):.0f})':>16}" for x in each))


if __name__ == "__main__":
    main()
