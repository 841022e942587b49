"""Debian's prometheus and promtool, for one test."""

import json
import shutil
import subprocess
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.ports import free_port, wait_until
from tests.support.processes import end

PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running server."""

    url: str

    def query(self, expression: str, at_unix_s: float | None = None) -> list[Any]:
        """The series that the expression gives, now unless a time is given."""
        at = {} if at_unix_s is None else {"time": f"{at_unix_s:.3f}"}
        asked = urllib.parse.urlencode({"query": expression, **at})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{asked}", timeout=30) as answer:  # noqa: S310  # http
            found: list[Any] = json.load(answer)["data"]["result"]
        return found

    def wait_for(self, expression: str) -> list[Any]:
        """Wait until the expression gives at least one series."""
        found: list[Any] = []

        def is_there() -> bool:
            found[:] = self.query(expression)
            return bool(found)

        wait_until(is_there, f"{expression} gives something", PATIENCE_S)
        return found


@contextmanager
def prometheus(
    scrape_configs: Sequence[dict[str, Any]] = (), rules: Sequence[Path] = (), openmetrics: str = ""
) -> Iterator[Prometheus]:
    """Scrape and evaluate the rules every second until the block ends. openmetrics: samples with
    timestamps that it has from the start."""
    address = f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory(prefix="leadline-prometheus-") as name:
        folder = Path(name)
        if openmetrics:
            (folder / "samples").write_text(openmetrics)
            blocks = ("create-blocks-from", "openmetrics", f"{folder}/samples", f"{folder}/data")
            promtool("tsdb", *blocks)
        # YAML reads JSON.
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "scrape_configs": list(scrape_configs),
            "rule_files": [str(each) for each in rules],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [
                    program("prometheus"),
                    f"--config.file={folder}/prometheus.yml",
                    f"--storage.tsdb.path={folder}/data",
                    f"--web.listen-address={address}",
                ],
                stdout=log,
                stderr=log,
            )
        server = Prometheus(f"http://{address}")
        try:
            wait_until(lambda: _is_ready(server, process, folder / "log"), "it is up", PATIENCE_S)
            yield server
        finally:
            end(process)


def promtool(*arguments: str, stdin: bytes = b"") -> str:
    """What promtool says. Raises AssertionError unless it is content."""
    done = subprocess.run(
        [program("promtool"), *arguments], input=stdin, capture_output=True, timeout=60
    )
    said = (done.stdout + done.stderr).decode(errors="replace")
    assert done.returncode == 0, said
    return said


def program(name: str) -> str:
    """Its path. Raises AssertionError if it is not installed."""
    path = shutil.which(name)
    assert path, f"{name} is missing: make prometheus"
    return path


def _is_ready(server: Prometheus, process: "subprocess.Popen[bytes]", log: Path) -> bool:
    assert process.poll() is None, log.read_text(errors="replace")[-2000:]
    try:
        with urllib.request.urlopen(f"{server.url}/-/ready", timeout=5) as answer:  # noqa: S310  # http
            return int(answer.status) == 200
    except OSError:
        return False


DOCS = Path(__file__).parents[2] / "docs"


RULES = DOCS / "examples" / "prometheus" / "leadline.rules.yml"
