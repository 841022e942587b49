"""The Grafana dashboards: as the code makes them, in one style, of documented metrics, and the same
whether one or two controllers are scraped. tests/system/test_dashboards.py asks a real one."""

import json
import re
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from leadline_dashboards.__main__ import rendered
from prometheus_client.parser import text_string_to_metric_families

from tests.controller.metrics.scraped import controllers_metrics
from tests.support.dashboards import FOLDER, dashboards, panel_queries, panels
from tests.support.prometheus import Prometheus, prometheus

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
ALL = dashboards()
# What only the leader does, or each controller by itself: these counters rest at a standby.
OF_ONE = re.compile(
    r"leadline_(decisions|scheduling_duration|moves|extender|history_losses|shadow)_.*|leadline_leader"
)
SAMPLES, STEP_S = 21, 15


def test_the_files_are_as_the_code_makes_them() -> None:
    assert {name: (FOLDER / name).read_text() for name in ALL} == rendered(), "make dashboards"


@pytest.mark.parametrize("name", ALL)
def test_grafanas_own_types_read_each_file_and_lose_nothing(name: str) -> None:
    read = Dashboard.from_json(ALL[name])
    assert (read.uid, read.schema_version) == (name.removesuffix(".json"), 39)
    assert read.links
    read.links[0].placement = None  # type: ignore[assignment]  # as in panels.py
    assert json.loads(json.dumps(read, cls=JSONEncoder)) == ALL[name]


@pytest.mark.parametrize("name", ALL)
def test_each_dashboard_links_to_the_others_and_fits_the_grid(name: str) -> None:
    dashboard = ALL[name]
    (link,) = dashboard["links"]
    assert (link["type"], link["tags"], link["keepTime"]) == ("dashboards", dashboard["tags"], True)
    assert dashboard["templating"]["list"][0]["type"] == "datasource"
    every = dashboard["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    for panel in every:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
    for a, b in combinations([panel["gridPos"] for panel in every], 2):
        apart = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert apart or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"], (a, b)


@pytest.mark.parametrize("name", ALL)
def test_each_panel_says_what_it_shows_in_one_sentence(name: str) -> None:
    for panel in panels(ALL[name]):
        said = panel["description"]
        assert said[0].isupper(), said
        assert said.endswith("."), said
        assert ". " not in said, said


@pytest.mark.parametrize("name", ALL)
def test_each_panel_asks_the_source_that_is_chosen_and_has_legends_and_units(name: str) -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels(ALL[name]):
        assert panel["datasource"] == chosen
        for target in panel["targets"]:
            assert target["datasource"] == chosen
            assert target["format"] == "table" or target["legendFormat"], panel["title"]
            assert target["expr"].count("rate(") == target["expr"].count("[$__rate_interval]") or (
                "increase(" in target["expr"]
            )
        if panel["type"] in ("timeseries", "stat", "bargauge"):
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


def test_the_page_has_each_dashboard() -> None:
    linked = re.findall(r"roles/grafana/files/([\w.-]+\.json)", PAGE.read_text())
    assert sorted(linked) == sorted(ALL)


def test_the_panels_read_metrics_that_the_page_has() -> None:
    page = set(re.findall(r"leadline_\w+", PAGE.read_text()))
    read = {
        re.sub(r"_(seconds|victims)_(bucket|count|sum)$", r"_\1", name)
        for query in panel_queries()
        for name in re.findall(r"\bleadline_\w+\b(?![|(])", query.expression)
    }
    assert len(read) > 30
    assert read <= page


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    return controllers_metrics(tmp_path_factory.mktemp("metrics"))


def samples(text: str, instance: str, begin_s: float, leads: bool) -> Iterator[str]:
    """What Prometheus would keep of a controller that writes this text again and again."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            names = dict(sample.labels) | {"instance": instance, "job": "leadline"}
            labels = ",".join(f'{name}="{value}"' for name, value in names.items())
            grows = sample.name.endswith(("_total", "_bucket", "_count", "_sum"))
            for at in range(SAMPLES):
                value = sample.value * (1 + at if grows else 1)
                value = value if leads or not OF_ONE.fullmatch(sample.name) else 0
                yield f"{sample.name}{{{labels}}} {value} {begin_s + at * STEP_S}\n"


def answers(server: Prometheus, expression: str, at_unix_s: float) -> dict[frozenset[Any], float]:
    """Labels -> value, without the series of the controller `standby`."""
    return {
        frozenset(found["metric"].items()): float(found["value"][1])
        for found in server.query(expression, at_unix_s)
        if found["metric"].get("instance") != "standby"
    }


@pytest.mark.prometheus
def test_a_standby_that_is_scraped_too_doubles_nothing(written: str) -> None:
    # Prometheus makes blocks of two hours that have ended.
    begin_s = time.time() // 7200 * 7200 - 3 * 3600
    alone = list(samples(written, "leader", begin_s, leads=True))
    both = alone + list(samples(written, "standby", begin_s, leads=False))
    end_s = begin_s + (SAMPLES - 1) * STEP_S
    with (
        prometheus(openmetrics="".join([*alone, "# EOF\n"])) as one,
        prometheus(openmetrics="".join([*both, "# EOF\n"])) as two,
    ):
        for query in panel_queries():
            expression = query.expanded({"__rate_interval": "1m", "node": "n1", "phase": "decide"})
            first = answers(one, expression, end_s)
            assert answers(two, expression, end_s) == pytest.approx(first, nan_ok=True), query
