"""Chromium from Debian's package, without the internet, and pages in it that remember errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
# Against what hangs; no test is judged by its time.
PATIENCE_MS = 90_000
DESKTOP = (1280, 900)
PHONE = (320, 640)


@contextmanager
def chromium(**options: Any) -> Iterator[Browser]:
    """A browser with a new, empty profile."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, headless=True, args=FLAGS, timeout=PATIENCE_MS, **options
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def page_of(
    browser: Browser, size: tuple[int, int] = DESKTOP, dark: bool = False, **options: Any
) -> Iterator[tuple[Page, list[str]]]:
    """A page, and what went wrong in it: errors on its console, exceptions, dialogs, requests
    to anything but this machine."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if dark else "light",
        locale="en-GB",
        timezone_id="UTC",
        **options,
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    errors: list[str] = []

    def console(message: Any) -> None:
        # The advice on reading a canvas is of what tests do.
        if message.type in ("error", "warning") and "willReadFrequently" not in message.text:
            errors.append(f"{message.type}: {message.text} {message.location}")

    def dialog(shown: Any) -> None:
        errors.append(f"dialog: {shown.message}")
        shown.dismiss()

    def request(made: Any) -> None:
        if not made.url.startswith(("http://127.0.0.1:", "https://127.0.0.1:", "data:")):
            errors.append(f"request to the outside: {made.url}")

    page.on("request", request)
    page.on("console", console)
    page.on("pageerror", lambda error: errors.append(f"exception: {error}"))
    page.on("dialog", dialog)
    try:
        yield page, errors
    finally:
        context.close()


def ready(page: Page) -> None:
    """Wait until the page is live and has drawn."""
    page.wait_for_selector("#state[data-state=live]")
    page.wait_for_function("() => document.querySelector('#map-summary').textContent !== ''")


# How many pixels of the map have the colour of this variable of the style sheet, or nearly so.
PIXELS = """(variable) => {
    const style = getComputedStyle(document.documentElement).getPropertyValue(variable);
    const [r, g, b] = style.trim().match(/[0-9a-f]{2}/gi).map((digits) => parseInt(digits, 16));
    let found = 0;
    for (const canvas of document.querySelectorAll('#map canvas')) {
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        for (let i = 0; i < data.length; i += 4) {
            const [red, green, blue, alpha] = data.subarray(i, i + 4);
            const away = Math.abs(red - r) + Math.abs(green - g) + Math.abs(blue - b);
            if (alpha > 128 && away < 24) found++;
        }
    }
    return found;
}"""

# Whether the layer of traffic says how many boards count.
TRAFFIC_DRAWN = "() => /count/.test(document.querySelector('#traffic-note').textContent)"

AXE = Path(__file__).parent / "vendor" / "axe.js"


def go(page: Page, address: str, view: str = "") -> None:
    """Open a view, and wait until it is live."""
    page.goto(f"{address}/{view}")
    page.wait_for_selector("#state[data-state=live]")
    if not view:
        ready(page)


def counts(page: Page) -> dict[str, int]:
    """What the page says of its own charts and listeners."""
    found: dict[str, int] = page.evaluate("() => leadline.counts()")
    return found
