"""The page of metrics has just the names, types and labels that the daemons write."""

import re
from collections.abc import Iterator
from pathlib import Path

from leadline_agent import textfile
from leadline_wire.v1 import telemetry_pb2 as pb
from prometheus_client.parser import text_string_to_metric_families

from tests.controller.metrics.scraped import controllers_metrics

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"\| (`leadline_.+?`) \| (gauge|counter|histogram)(?:: (.*?))? \|")
Described = dict[str, tuple[str, frozenset[str]]]


def described() -> Described:
    """Name -> type and labels, as the tables have them."""
    found: Described = {}
    everywhere: dict[str, set[str]] = {"Boards": {"node"}, "Links": {"node", "peer"}}
    for section in PAGE.read_text().split("\n## "):
        common = everywhere.get(section.partition("\n")[0], set())
        for names, kind, labels in ROW.findall(section):
            own = set(re.findall(r"`(\w+)`", labels))
            every = own if labels.startswith("only") else own | common
            for name in re.findall(r"`(\w+)`", names):
                found[name] = (kind, frozenset(every))
    return found


def written(text: str) -> Iterator[tuple[str, tuple[str, frozenset[str]]]]:
    """The same of what a daemon writes."""
    for family in text_string_to_metric_families(text):
        total = "_total" if family.type == "counter" else ""
        for sample in family.samples:
            if family.name.startswith("leadline_"):
                labels = frozenset(sample.labels) - {"le"}
                yield f"{family.name}{total}", (family.type, labels)


def test_the_page_has_just_the_metrics_that_are_written(tmp_path: Path) -> None:
    text = controllers_metrics(tmp_path)
    report = pb.Report(cpu=pb.Cpu(throttled=True, under_voltage=True))
    report.collectors.add(name="cpu", outcome=pb.CollectorRun.OK)
    status = textfile.Status("pi-1", "1", 10, True, 0, certificate_ends_s=2e9)
    text += textfile.text_of(report, status, 1.0)
    assert dict(written(text)) == described()
