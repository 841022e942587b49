"""The Grafana dashboards as the role has them, and what their panels ask."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "ansible" / "roles" / "grafana" / "files"
# What Grafana puts in place of its own variables; here as long as a test may take.
GRAFANAS = {"__rate_interval": "10m", "__range": "10m"}


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """One query of a panel, with Grafana's variables in its expression."""

    dashboard: str
    panel: str
    expression: str
    legend: str

    def expanded(self, variables: Mapping[str, str]) -> str:
        """The expression as Prometheus gets it."""
        text = self.expression
        for name, value in (GRAFANAS | dict(variables)).items():
            text = text.replace(f"${name}", value)
        assert "$" not in text, f"{self}: the test does not know this variable"
        return text


def dashboards() -> dict[str, dict[str, Any]]:
    """File name -> what is in it."""
    return {path.name: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def panels(dashboard: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The panels that show something: not the rows."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def panel_queries() -> Iterator[PanelQuery]:
    """Every query of every panel."""
    for dashboard in dashboards().values():
        for panel in panels(dashboard):
            for target in panel["targets"]:
                legend = target.get("legendFormat", "")
                yield PanelQuery(dashboard["uid"], panel["title"], target["expr"], legend)
