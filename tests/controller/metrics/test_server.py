"""The format of an answer is one that is made, whatever a client asks for."""

import pytest
from aiohttp import ClientSession
from leadline_controller.metrics.server import MetricsServer
from leadline_controller.serve.settings import MetricsSettings

from tests.controller.inspect.harness import example_controller
from tests.controller.metrics.scraped import reader

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
ASKED = {
    "": TEXT,
    "*/*": TEXT,
    ",;=,": TEXT,
    "application/openmetrics-text": OPENMETRICS,
    "application/openmetrics-text; version=1.0.0; charset=utf-8": OPENMETRICS,
    # Prometheus 3.
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;q=0.3": (
        OPENMETRICS
    ),
    # Prometheus 2.22 and older.
    "application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5": TEXT,
    "application/openmetrics-text;version=2.0.0": TEXT,
    "application/openmetrics-text;version=x": TEXT,
    "application/openmetrics-text;version=\xff": TEXT,
    "text/plain;version=1.0.0;escaping=dots": TEXT,
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;q=0.7": TEXT,
}


@pytest.mark.parametrize(("accepted", "given"), ASKED.items())
async def test_the_format_is_named_that_is_sent(accepted: str, given: str) -> None:
    server = MetricsServer(MetricsSettings("127.0.0.1:0"), reader(example_controller()))
    url = f"http://{await server.start()}/metrics"
    try:
        async with ClientSession() as session, session.get(url, headers={"Accept": accepted}) as it:
            text = await it.text()
    finally:
        await server.stop()
    assert (it.status, it.headers["Content-Type"]) == (200, given)
    assert text.endswith("# EOF\n") == (given == OPENMETRICS)
