"""The page of a comparison in a real Chromium."""

from __future__ import annotations

from dataclasses import replace

import pytest
from leadline_lab.replay.comparison import compare
from leadline_lab.replay.page import page

from tests.lab.replay.synthetic import DACS, KUBE_DEFAULT, NETSCHED, outcomes
from tests.web.browser import AXE, DESKTOP, PHONE, chromium, page_of

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


def test_the_page_is_accessible_and_fits_in_light_and_dark() -> None:
    given = [
        replace(each, strategy=f"{each.strategy}<img src=x onerror=alert(1)>")
        for each in outcomes([KUBE_DEFAULT, NETSCHED, DACS], 1, 100)
    ]
    text = page(compare(given), given)
    with chromium() as browser:
        for size, dark in ((DESKTOP, False), (DESKTOP, True), (PHONE, False)):
            with page_of(browser, size, dark) as (shown, errors):
                shown.set_content(text)
                shown.evaluate("() => { document.querySelector('details').open = true; }")
                shown.evaluate(AXE.read_text())
                found = shown.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
                assert [each["id"] for each in found["violations"]] == []
                assert len(found["passes"]) > 10
                wide = "() => document.documentElement.scrollWidth - window.innerWidth"
                assert shown.evaluate(wide) <= 0
                assert shown.locator("svg").first.bounding_box() is not None
                assert errors == []
