"""The ScaledObjects of docs/examples are what Leadline's scaler reads, and what its page says."""

from pathlib import Path

import pytest
import yaml
from leadline_controller.keda.request_rate import read_counter
from leadline_controller.keda.scaler import read_trigger

from tests.kube.keda import EXAMPLES

PAGE = EXAMPLES.parents[1] / "replicas.md"


def trigger(file: Path) -> tuple[str, dict[str, str]]:
    *_, scaled = yaml.safe_load_all(file.read_text())
    (only,) = scaled["spec"]["triggers"]
    return only["type"], only["metadata"]


def test_leadline_reads_the_example() -> None:
    kind, metadata = trigger(EXAMPLES / "scaled-object.yaml")
    read = read_trigger("default", metadata)
    assert (kind, read.labels, read.target) == ("external", {"app": "web"}, 50)
    assert read_counter(read.requests)[1] == {"service": "default-web-80@kubernetes"}


def test_both_examples_count_the_same_requests() -> None:
    _, ours = trigger(EXAMPLES / "scaled-object.yaml")
    _, prometheus = trigger(EXAMPLES / "prometheus.yaml")
    assert ours["requests"] in prometheus["query"]
    assert ours["target"] == prometheus["threshold"]


@pytest.mark.parametrize("field", ["scalerAddress", "pods", "requests", "metric", "target"])
def test_the_page_tells_every_field(field: str) -> None:
    assert f"| `{field}` |" in PAGE.read_text()
    assert field in trigger(EXAMPLES / "scaled-object.yaml")[1]
