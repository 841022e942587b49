"""The alert rules: each fires when it should and only then, and reads documented metrics."""

import re
from pathlib import Path

import pytest
import yaml

from tests.support.prometheus import DOCS, RULES, promtool

TESTS = Path(__file__).with_name("prometheus_rules_test.yml")


@pytest.mark.prometheus
def test_promtool_finds_no_fault_with_the_rules_and_each_alert_fires_when_it_should() -> None:
    assert "SUCCESS" in promtool("check", "rules", "--lint-fatal", str(RULES))
    assert "SUCCESS" in promtool("test", "rules", str(TESTS))


def test_each_alert_is_tested_both_ways() -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    alerts = {(rule["alert"], rule["labels"].get("what")) for g in groups for rule in g["rules"]}
    fired, silent = set(), set()
    for test in yaml.safe_load(TESTS.read_text())["tests"]:
        for each in test["alert_rule_test"]:
            fired |= {(each["alertname"], a["exp_labels"].get("what")) for a in each["exp_alerts"]}
            silent |= set() if each["exp_alerts"] else {each["alertname"]}
    assert fired == alerts
    assert silent == {name for name, _ in alerts}


def test_the_rules_read_metrics_that_the_page_has() -> None:
    page = set(re.findall(r"leadline_\w+", (DOCS / "metrics.md").read_text()))
    read = {
        name
        for group in yaml.safe_load(RULES.read_text())["groups"]
        for rule in group["rules"]
        for name in re.findall(r"\bleadline_\w+", rule["expr"])
    }
    assert read <= page
