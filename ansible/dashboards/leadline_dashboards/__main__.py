"""Writes the dashboards as Grafana reads them: `make dashboards`."""

import json
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from leadline_dashboards import board, cluster, scheduling

FOLDER = Path(__file__).parents[2] / "roles" / "grafana" / "files"


def rendered() -> dict[str, str]:
    """File name -> the dashboard's JSON."""
    return {
        f"{built.uid}.json": json.dumps(built, cls=JSONEncoder, indent=2, ensure_ascii=False) + "\n"
        for built in (cluster.dashboard(), board.dashboard(), scheduling.dashboard())
    }


if __name__ == "__main__":
    for name, text in rendered().items():
        (FOLDER / name).write_text(text)
