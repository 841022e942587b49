"""The map's page in Chromium: first paint, frames while updates arrive, and what an hour leaves.
`python -m tests.bench.map hour` leaves the page open for a real hour.

The server's answers are made up, so this is the page alone. Chromium draws without a GPU here, on
the cores that all else uses too: read the numbers beside those of 4 boards.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from playwright.sync_api import Browser

from tests.web.browser import chromium, page_of, ready
from tests.web.canned import NOW_UNIX_S, Canned, Cluster, served

UPDATES_PER_S = 10
WATCHED_S = 10
# An hour of the server's updates, at most two a second, as fast as the page takes them.
HOUR, UPDATE_EVERY_S = 7200, 0.5
FRAMES = """() => {
    globalThis.frames_ms = [];
    let last = performance.now();
    const frame = (now) => {
        frames_ms.push(now - last);
        last = now;
        requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
}"""
PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
DRAWN = "() => performance.now()"


def main(is_real_hour: bool = False) -> None:
    """Print a line for each size, then the growth; or that alone, of a real hour."""
    if is_real_hour:
        cluster = Cluster(300)
        with chromium() as browser, served(cluster) as server:
            _growth(browser, server, cluster, UPDATE_EVERY_S)
        return
    print(f"{'boards':>6} {'first paint':>12} {'map drawn':>10} {'frames/s':>9} {'95 %':>10}")
    with chromium() as browser:
        for boards in (4, 300):
            cluster = Cluster(boards)
            with served(cluster) as server:
                _frames(browser, server, cluster)
        cluster = Cluster(300)
        with served(cluster) as server:
            _growth(browser, server, cluster)


def _update(cluster: Cluster, server: Canned, number: int) -> None:
    nodes = cluster.random.sample(cluster.nodes, min(30, len(cluster.nodes)))
    for node in nodes:
        node["cpu_percent"] = cluster.random.uniform(0, 100)
    links = cluster.random.sample(cluster.links, min(60, len(cluster.links)))
    server.send("overview", {"nodes": nodes, "links": links})
    if number % 5 == 0:
        decision = cluster.decision(f"pod-{number}", cluster.nodes[0]["name"], NOW_UNIX_S + number)
        server.send("decision", decision)


def _frames(browser: Browser, server: Canned, cluster: Cluster) -> None:
    with page_of(browser) as (page, _):
        page.goto(server.address)
        ready(page)
        drawn_ms, paint_ms = page.evaluate(DRAWN), page.evaluate(PAINT)
        page.wait_for_timeout(1000)
        page.evaluate(FRAMES)
        for number in range(UPDATES_PER_S * WATCHED_S):
            _update(cluster, server, number)
            page.wait_for_timeout(1000 / UPDATES_PER_S)
        frames: list[float] = sorted(page.evaluate("() => frames_ms"))
        slow_ms = frames[int(0.95 * len(frames))]
        rate = 1000 * len(frames) / sum(frames)
        print(
            f"{len(cluster.nodes):6} {paint_ms:9.0f} ms {drawn_ms:7.0f} ms {rate:9.1f} "
            f"{slow_ms:9.0f} ms or less"
        )


def _growth(
    browser: Browser, server: Canned, cluster: Cluster, update_every_s: float = 0.01
) -> None:
    """Memory after a garbage collection, and elements, at the start, then after each quarter.
    update_every_s: at least 10 ms, so that updates are not faster than the page reads them."""
    print(f"\n{HOUR} updates and {HOUR // 5} decisions, 300 boards: what the page holds")
    print(
        f"{'updates':>8} {'open for s':>10} {'heap MB':>8} {'elements':>9} {'decisions':>10} "
        f"{'charts':>7}"
    )
    begun_s = time.monotonic()
    with page_of(browser) as (page, _):
        session = page.context.new_cdp_session(page)
        page.goto(server.address)
        ready(page)
        for number in range(HOUR + 1):
            if number % (HOUR // 4) == 0:
                page.wait_for_timeout(2000)
                session.send("HeapProfiler.collectGarbage")
                heap: dict[str, Any] = session.send("Runtime.getHeapUsage")
                held = page.evaluate("() => leadline.counts()")
                print(
                    f"{number:8} {time.monotonic() - begun_s:10.0f} "
                    f"{heap['usedSize'] / 1e6:8.1f} {held['elements']:9} "
                    f"{held['decisions']:10} {held['charts']:7}",
                    flush=True,
                )
            _update(cluster, server, number)
            left_s = begun_s + (number + 1) * update_every_s - time.monotonic()
            page.wait_for_timeout(1000 * max(left_s, 0.01))


if __name__ == "__main__":
    main(is_real_hour=sys.argv[1:] == ["hour"])
