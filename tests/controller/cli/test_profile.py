"""`leadline profile` on real HTTP services, and what the controller makes of its file."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

import pytest
from leadline_controller import loops, wiring
from leadline_controller.cli.http_timing import TimingError, timed
from leadline_controller.cluster.service_profiles import (
    BoardProfile,
    ServiceProfile,
    ServiceProfiles,
    read_profiles,
    with_profile,
    write_profiles,
)
from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.model import Pod, PodAnnotations
from leadline_controller.framework.ports import NodeChanged, PodChanged
from leadline_controller.parsing.fields import FieldError
from leadline_controller.settings import ConfigError, load

from tests.controller.cli.calling import Leadline, calling
from tests.controller.inspect.harness import answering, example_controller, node, pod
from tests.support.manual_clock import ManualClock
from tests.support.ports import free_port

LABELS = {"app": "web"}


@contextmanager
def service(work_s: float, status: int = 200) -> Iterator[int]:
    """An HTTP service that works so long on each request; yields its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(work_s)
            self.send_response(status if self.path == "/" else 404)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def test_the_work_of_a_real_service_is_in_its_time() -> None:
    """A busy machine makes it longer, never shorter."""
    with service(0.03) as port:
        found = timed("127.0.0.1", port, "/", 5, 10.0)
    assert found.ms >= 30 - found.rtt_ms
    assert found.rtt_ms > 0


def test_the_shortest_connect_is_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that the connects and the answers move: connects take 20 to 24 ms, and the work
    is 30 ms."""
    now_s, connects_s = [0.0], iter([0.020, 0.020, 0.024, 0.020, 0.022])

    class Client:
        sock = None

        def __init__(self, *_: Any, timeout: float) -> None:
            self.status, self._trip_s = 200, 0.0

        def connect(self) -> None:
            self._trip_s = next(connects_s)
            now_s[0] += self._trip_s

        def request(self, *_: Any, headers: Any) -> None:
            now_s[0] += 0.020 + 0.030

        def getresponse(self) -> "Client":
            return self

        def read(self, _: int) -> bytes:
            return b"hello"

        def close(self) -> None:
            pass

    from leadline_controller.cli import http_timing

    monkeypatch.setattr(http_timing, "HTTPConnection", Client)
    monkeypatch.setattr(time, "perf_counter", lambda: now_s[0])
    found = timed("10.0.0.1", 80, "/", 3, 10.0)
    assert found.ms == pytest.approx(30.0)
    assert found.rtt_ms == pytest.approx(20.0)
    # The work is the same each time; only the connects differ, which do not belong to it.
    assert found.deviation_ms == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("status", "path", "said"), [(500, "/", "500"), (200, "/no", "404")])
def test_a_page_that_fails_is_not_measured(status: int, path: str, said: str) -> None:
    with service(0, status) as port, pytest.raises(TimingError, match=said):
        timed("127.0.0.1", port, path, 3, 10.0)


@contextmanager
def answering_with(said: bytes) -> Iterator[int]:
    """A server that says just this on each connection, and ends it; yields its port."""

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(said)

    with serving(Handler) as port:
        yield port


@contextmanager
def serving(handler: type[BaseRequestHandler]) -> Iterator[int]:
    with ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("head", "body", "said"),
    [
        ("308 Moved\r\nLocation: /detect/", "", "answered 308, a redirect to /detect/; name the p"),
        ("301 Moved\r\nLocation: https://x.example/", "moved", "a redirect to https://x.example/;"),
        ("302 Found\r\nLocation: /\x1b[2J\x07", "", r"a redirect to /\?\[2J\?; name the page"),
        ("307 Moved", "", "answered 307; name a page with --path"),
        ("304 Not Modified", "", "answered 304; name a page"),
        ("101 Switching Protocols\r\nUpgrade: x", "", "answered 101; name a page"),
        ("202 Accepted", "queued", "answered 202; name a page"),
        ("204 No Content", "", "answered 204; name a page"),
        ("401 Unauthorized", "who are you?", "answered 401; name a page"),
        ("503 Busy\r\nRetry-After: 1", "", "answered 503; name a page"),
        ("200 OK\r\nContent-Length: 10", "half", "the answer ended 6 bytes early; look at"),
        ("200 OK\r\nTransfer-Encoding: chunked", "5\r\nhalf", "IncompleteRead"),
    ],
)
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_an_answer_that_is_not_the_services_work_is_not_measured(
    version: str, head: str, body: str, said: str
) -> None:
    answer = f"HTTP/{version} {head}\r\n\r\n{body}".encode()
    with answering_with(answer) as port, pytest.raises(TimingError, match=said) as refused:
        timed("127.0.0.1", port, "/detect", 3, 10.0)
    assert f"http://127.0.0.1:{port}/detect: " in str(refused.value)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "closed connection without response"),
        (
            b"\x15\x03\x03\x00\x02\x02\x16",
            "it speaks TLS; name its port for plain HTTP with --port",
        ),
        (b"220 mail.example ESMTP\x07\r\n", "it does not speak HTTP .220 mail"),
        (
            b"HTTP/1.0 400 Bad\r\n\r\nClient sent an HTTP request to an HTTPS server.",
            "answered 400",
        ),
    ],
)
def test_what_is_no_plain_http_is_not_measured(answer: bytes, said: str) -> None:
    with answering_with(answer) as port, pytest.raises(TimingError, match=said) as refused:
        timed("127.0.0.1", port, "/", 3, 10.0)
    assert str(refused.value).isprintable()


async def test_a_redirect_is_told_in_one_line_and_nothing_is_saved(
    leadline: Leadline, tmp_path: Path
) -> None:
    file = tmp_path / "profiles.json"
    with answering_with(b"HTTP/1.1 308 Moved\r\nLocation: /detect/\r\n\r\n") as port:
        asked = ("--pods", "app=web", "--port", str(port), "--path", "/detect")
        code, out, line = await leadline(*asked, "--save", str(file))
    assert (code, out, line.count("\n"), file.exists()) == (1, "", 1, False)
    assert "/detect: answered 308, a redirect to /detect/; name the page" in line


def test_a_silent_service_is_not_waited_for() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(TimingError, match="no whole answer within"),
    ):
        timed("127.0.0.1", silent.getsockname()[1], "/", 3, 0.1)
    with pytest.raises(TimingError, match="refused"):
        timed("127.0.0.1", free_port(), "/", 3, 1.0)


@pytest.mark.parametrize(
    "head",
    [
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: ",
    ],
)
def test_an_answer_that_does_not_end_is_not_waited_for(head: str) -> None:
    """Each byte comes in time; the server stops only if the client does."""

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.request.sendall(head.encode())
                while True:
                    self.request.sendall(b"x")
                    time.sleep(0.02)

    with (
        serving(Handler) as port,
        pytest.raises(TimingError, match="no whole answer within"),
    ):
        timed("127.0.0.1", port, "/", 3, 0.2)


@pytest.fixture
async def leadline(capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Leadline]:
    harness = example_controller()
    classed = node("n1", labels={"leadline.dev/class": "pi4"})
    harness.cluster.apply(NodeChanged(classed))
    for name, at in (("web-a", "n1"), ("web-b", "n2")):
        harness.cluster.apply(
            PodChanged(pod(name, labels=LABELS, node_name=at, ips=("127.0.0.1",)))
        )
    harness.cluster.apply(PodChanged(pod("web-c", labels=LABELS)))
    async with answering(harness) as address:
        call = calling(capsys, "--address", address)
        yield lambda *arguments: call("profile", *arguments)


async def test_each_board_with_a_replica_is_measured_and_saved(
    leadline: Leadline, tmp_path: Path
) -> None:
    file = tmp_path / "profiles.json"
    with service(0.02) as port:
        asked = ("--pods", "app=web", "--port", str(port), "--requests", "3")
        code, out, err = await leadline(*asked, "--save", str(file), "-o", "json")
    assert (code, err) == (0, "")
    (shown,) = json.loads(out)["services"]
    assert list(shown["boards"]) == ["n1", "n2"]
    assert (shown["boards"]["n1"]["class"], shown["classes"]["pi4"]["boards"]) == ("pi4", 1)
    (saved,) = read_profiles(file)
    assert (saved.namespace, saved.labels, set(saved.boards)) == ("default", LABELS, {"n1", "n2"})
    assert 20 <= saved.profile_ms()["pi4"] < 100


async def test_the_table_shows_boards_and_classes(leadline: Leadline) -> None:
    with service(0) as port:
        asked = ("--pods", "app=web", "--port", str(port), "--requests", "3")
        code, out, _ = await leadline(*asked)
    assert code == 0
    assert {"NODE", "n1", "n2", "pi4", "CLASS", "BOARDS"} <= set(out.split())


async def test_what_cannot_be_measured_is_said_in_one_line(
    leadline: Leadline, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged.json"
    damaged.write_text("{")
    cases = [
        (("--pods", "app=none"), 1, "no pod in default"),
        (("--pods", "app"), 2, "--pods"),
        (("--pods", "app=web", "--path", "no"), 2, "--path"),
        (("--pods", "app=web", "--port", str(free_port())), 1, "web-a on n1: http://127.0.0.1"),
        (("--pods", "app=web", "--save", str(damaged)), 2, "--save"),
    ]
    for arguments, expected, said in cases:
        code, out, err = await leadline(*arguments)
        assert (code, out) == (expected, "")
        assert said in err
        assert len(err.splitlines()) == 1


def profiled(**boards: BoardProfile) -> ServiceProfile:
    return ServiceProfile("default", LABELS, boards)


def board(ms: float, node_class: str = "", deviation_ms: float = 0.0) -> BoardProfile:
    return BoardProfile(node_class, ms, deviation_ms, 0.5, 20)


def test_a_class_has_the_mean_of_its_boards_and_the_spread_of_any_request() -> None:
    service = profiled(a=board(10, "pi", 3), b=board(18, "pi", 3), c=board(99))
    assert service.classes() == {"pi": (14, 5, 2)}  # sqrt(3^2 + 4^2)
    assert service.profile_ms() == {"pi": 14, "a": 10, "b": 18, "c": 99}


def test_a_pod_without_a_profile_gets_that_of_its_service() -> None:
    special = ServiceProfile("default", {**LABELS, "tier": "x"}, {"a": board(7)})
    profiles = ServiceProfiles([profiled(a=board(10)), special])

    def profile_of(**changed: Any) -> dict[str, float]:
        made = Pod(**{"namespace": "default", "name": "p", "labels": LABELS, **changed})
        return dict(profiles.applied(made).annotations.profile_ms)

    assert profile_of() == {"a": 10}
    assert profile_of(labels={**LABELS, "tier": "x"}) == {"a": 7}
    assert profile_of(annotations=PodAnnotations(profile_ms={"a": 1.0})) == {"a": 1}
    assert profile_of(namespace="other") == profile_of(labels={"app": "db"}) == {}


def test_boards_that_are_not_measured_again_keep_their_profile(tmp_path: Path) -> None:
    file = tmp_path / "profiles.json"
    other = ServiceProfile("default", {"app": "db"}, {"a": board(1)})
    before = [profiled(a=board(10), b=board(20)), other]
    write_profiles(file, with_profile(before, profiled(b=board(25, "pi"))))
    saved = {tuple(each.labels.values()): each for each in read_profiles(file)}
    assert saved["web",].profile_ms() == {"a": 10, "b": 25, "pi": 25}
    assert saved["db",].profile_ms() == {"a": 1}
    assert [each.name for each in tmp_path.iterdir()] == ["profiles.json"]


@pytest.mark.parametrize(
    ("service", "field"),
    [
        ({"namespace": "n", "pods": {}, "boards": {"a": {"ms": 1}}}, "pods"),
        ({"namespace": "n", "pods": LABELS, "boards": {}}, "boards"),
        ({"namespace": "n", "pods": LABELS, "boards": {"a": {}}}, "ms"),
        ({"namespace": "n", "pods": LABELS, "boards": {"a": {"ms": -1}}}, "ms"),
        ({"namespace": "n", "pods": LABELS, "boards": {"a": {"ms": 1, "x": 1}}}, "x"),
        ({"pods": LABELS, "boards": {"a": {"ms": 1}}}, "namespace"),
    ],
)
def test_a_wrong_file_is_refused_by_its_field(
    service: dict[str, Any], field: str, tmp_path: Path
) -> None:
    file = tmp_path / "profiles.json"
    kinds = {"apiVersion": "leadline.dev/v1", "kind": "ServiceProfiles"}
    file.write_text(json.dumps({**kinds, "services": [service]}))
    with pytest.raises(FieldError, match=field):
        read_profiles(file)
    config = tmp_path / "controller.toml"
    config.write_text(f'[strategy]\nprofiles = "{file}"\n')
    with pytest.raises(ConfigError, match=r"strategy\.profiles"):
        load(config, {})


async def test_the_controller_follows_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also for pods that are there already."""
    file, clock, state = tmp_path / "profiles.json", ManualClock(), ClusterState()
    state.apply(PodChanged(Pod("default", "p", "uid-p", labels=LABELS)))

    async def becomes(expected: dict[str, float]) -> bool:
        for _ in range(9000):
            await clock.advance(10.0)
            await asyncio.sleep(0.01)
            pod = state.pod("uid-p")
            assert pod is not None
            if pod.annotations.profile_ms == expected:
                return True
        return False

    async with wiring.running(loops.follow_profiles(state, file, clock)):
        assert await becomes({})
        write_profiles(file, [profiled(a=board(10))])
        assert await becomes({"a": 10})
        file.write_text("{")
        for _ in range(5):
            await clock.advance(10.0)
            await asyncio.sleep(0.02)
        assert await becomes({"a": 10})
        assert sum("stay in force" in each for each in caplog.messages) == 1
        file.unlink()
        assert await becomes({})
