"""The metrics of daemons: what promtool says of them, who gets them, and what Prometheus reads."""

import gzip
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.agents import agent_config, running_agent
from tests.support.certificates import Authority, Certificate
from tests.support.mosquitto import mosquitto
from tests.support.ports import free_port
from tests.support.prometheus import PATIENCE_S, prometheus, promtool
from tests.system.daemons import Daemon, eventually, unreachable_kubeconfig

pytestmark = [pytest.mark.broker, pytest.mark.prometheus]


@dataclass(frozen=True)
class Served:
    """A controller that answers Prometheus over TLS, and hears the board pi-1."""

    url: str
    authority: Authority
    shown: Certificate
    textfile: Path

    def ask(self, shown: Certificate | None, **headers: str) -> tuple[str, bytes]:
        """Content type and body. Raises OSError."""
        context = ssl.create_default_context(cafile=self.authority.ca_file)
        if shown is not None:
            context.load_cert_chain(shown.cert_file, shown.key_file)
        request = urllib.request.Request(self.url, headers=headers)  # noqa: S310  # https
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:  # noqa: S310
            return str(answer.headers["Content-Type"]), answer.read()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("metrics")
    authority = Authority(folder / "pki")
    port = free_port()
    with ExitStack() as cleanup:
        broker = cleanup.enter_context(mosquitto(tls=authority.server("127.0.0.1", "localhost")))
        server, shown = authority.peer("127.0.0.1"), authority.client("prometheus")
        config = folder / "controller.toml"
        config.write_text(
            f'[kubernetes]\nkubeconfig = "{unreachable_kubeconfig(folder, server.ca_file)}"\n'
            f'[grpc]\naddress = "127.0.0.1:{free_port()}"\n'
            f'[broker]\nhost = "localhost"\nport = {broker.port}\n{server.toml("broker.tls")}'
            f'[metrics]\naddress = "127.0.0.1:{port}"\n{server.toml("metrics.tls")}'
        )
        controller = Daemon("leadline_controller", config, folder / "controller.log")
        cleanup.callback(controller.stop)
        controller.start()
        controller.wait_said("answering Prometheus at")
        textfile = folder / "agent" / "leadline.prom"
        agent = agent_config(
            folder / "agent",
            broker.port,
            tls=authority.client("pi-1"),
            more=["[textfile]", f'path = "{textfile}"'],
        )
        cleanup.enter_context(running_agent(agent))
        served = Served(f"https://127.0.0.1:{port}/metrics", authority, shown, textfile)
        eventually(
            lambda: served.ask(shown)[1],
            lambda body: b"leadline_board_cpu_usage_ratio{" in body,
            "the board has reported",
            PATIENCE_S,
        )
        yield served


def test_promtool_finds_no_fault_with_the_metrics(served: Served) -> None:
    content_type, body = served.ask(served.shown)
    assert content_type.startswith("text/plain")
    assert promtool("check", "metrics", stdin=body) == ""
    text = body.decode()
    for expected in (
        'leadline_board_online{node="pi-1"} 1\n',
        "leadline_mqtt_connected 1.0\n",
        "leadline_cluster_synced 0.0\n",
        'leadline_certificate_expiry_timestamp_seconds{use="broker.tls.cert_file"} ',
        'leadline_mqtt_messages_accepted_total{kind="report"} ',
        "leadline_history_size_bytes ",
    ):
        assert expected in text


def test_who_asks_for_openmetrics_and_compression_gets_both(served: Served) -> None:
    accepted = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
    content_type, body = served.ask(served.shown, **{"Accept": accepted, "Accept-Encoding": "gzip"})
    assert content_type.startswith("application/openmetrics-text")
    assert gzip.decompress(body).endswith(b"# EOF\n")


def test_nobody_without_a_certificate_of_the_authority_gets_the_metrics(
    served: Served, tmp_path: Path
) -> None:
    for shown in (None, Authority(tmp_path, "Strangers").client("prometheus")):
        with pytest.raises(OSError, match=r"(?i)ssl|tls|reset|closed|alert|disconnected"):
            served.ask(shown)


def test_the_agents_file_is_whole_at_any_time_and_promtool_finds_no_fault_with_it(
    served: Served,
) -> None:
    seen = set()
    for _ in range(3):
        text = eventually(
            lambda: served.textfile.read_text() if served.textfile.exists() else "",
            lambda text: text and text not in seen,
            "it is new",
            PATIENCE_S,
        )
        seen.add(text)
        assert promtool("check", "metrics", stdin=text.encode()) == ""
        assert "leadline_agent_certificate_expiry_timestamp_seconds " in text
        assert "leadline_agent_broker_connected 1\n" in text or len(seen) < 3
    assert served.textfile.stat().st_mode & 0o777 == 0o644


def test_prometheus_reads_them_over_tls(served: Served) -> None:
    job = {
        "job_name": "leadline",
        "scheme": "https",
        "static_configs": [{"targets": [served.url.split("/")[2]]}],
        "tls_config": {
            "ca_file": str(served.authority.ca_file),
            "cert_file": str(served.shown.cert_file),
            "key_file": str(served.shown.key_file),
        },
    }
    with prometheus([job]) as server:
        (found,) = server.wait_for("leadline_board_memory_usage_ratio > 0")
        assert found["metric"]["node"] == "pi-1"
        server.wait_for("increase(leadline_mqtt_messages_accepted_total[10s]) > 0")
