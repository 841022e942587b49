"""The map of a running lab: a throttled link shows as such, a placement appears, and the page
survives a restart of the controller."""

from __future__ import annotations

import re

import pytest
from leadline_lab import lab as labs

from tests.lab.inventory import fresh_name
from tests.web.lab_map import THROTTLED, Played, play

pytestmark = [
    pytest.mark.browser,
    pytest.mark.network,
    pytest.mark.broker,
    pytest.mark.cluster,
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def played() -> Played:
    name = fresh_name()
    try:
        return play(name)
    finally:
        labs.down(name)


def test_a_throttled_link_shows_as_such(played: Played) -> None:
    shown = played.bandwidths[THROTTLED]
    (mbps,) = re.findall(r"[0-9.]+", shown)
    assert 0 < float(mbps) < 10
    # A busy machine's results are bounds or host-limited, and have another colour.
    if shown == f"{mbps} Mbit/s":
        assert "below 10 Mbit/s" in played.counts
        assert played.slow_pixels > 100
    assert any(THROTTLED in line.split("\t")[:2] for line in played.links.splitlines())


def test_placements_appear_where_they_are(played: Played) -> None:
    assert played.pod_on[0] == played.pod_on[1] != ""


def test_the_page_survives_a_restart_of_the_controller(played: Played) -> None:
    assert played.states == ["live", "connecting again", "live"]
    assert len(set(played.runs)) == 2
    assert played.after[0] == played.after[1] != ""


def test_the_console_has_no_error(played: Played) -> None:
    assert played.errors == []
