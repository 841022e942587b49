"""A server of the map's page with made-up answers, in the form that docs/web-api.md fixes."""

from __future__ import annotations

import json
import math
import mimetypes
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import leadline_controller.map
from leadline_controller.map.server import CONTENT_SECURITY_POLICY

FILES = Path(leadline_controller.map.__path__[0]) / "page"
NOW_UNIX_S = 1_800_000_000.0
SOURCES = ["unknown", "measured", "stale", "triangulated", "estimated", "unreachable", "bounded"]
Json = dict[str, Any]


class Cluster:
    """A cluster of so many boards: those of a segment near to each other, the same for a seed."""

    def __init__(self, boards: int, seed: int = 1, names: list[str] | None = None) -> None:
        self.random = draw = random.Random(seed)
        self.run = "run-1"
        self.measured_s = math.inf  # for how long
        self.segments = segments = max(1, round(math.sqrt(boards) / 2))
        centres = [(draw.uniform(0.1, 0.9), draw.uniform(0.1, 0.9)) for _ in range(segments)]
        places = ("attic", "cellar", "garage", "barn", "shed", "tower", "mill", "dock", "yard")
        self.nodes: list[Json] = []
        for i in range(boards):
            x, y = centres[i % segments]
            x, y = (min(1, max(0, at + draw.gauss(0, 0.05))) for at in (x, y))
            name = f"{places[i % segments % len(places)]}-{i + 1}"
            if names and i < len(names):
                name = names[i]
            mbps = draw.choice([93.4, 93.1, 94.0, 940.0, 941.5, 310.0, 47.0])
            pods = [
                {"namespace": "default", "name": f"web-{i}-{k}", "ours": draw.random() < 0.7}
                for k in range(draw.choice([0, 1, 1, 2, 3, 5]))
            ]
            self.nodes.append(
                {
                    "name": name,
                    "x": x,
                    "y": y,
                    "placed": True,
                    "agent": "online",
                    "online": True,
                    "in_cluster": True,
                    "ready": True,
                    "schedulable": i != 0,
                    "tier": "cloud" if boards > 4 and i % segments == segments - 1 else "edge",
                    "notes": [],
                    "bandwidth_mbps": mbps,
                    "bandwidth_kind": "at-least" if mbps == 310.0 else "exact",
                    "bandwidth_source": "tests",
                    "bandwidth_age_s": draw.uniform(10, 900),
                    "cpu_percent": draw.uniform(3, 80),
                    "memory_percent": draw.uniform(20, 90),
                    "temperature_c": draw.uniform(38, 71),
                    "age_s": draw.uniform(0, 9),
                    "pods": pods,
                }
            )
        slow = {"bandwidth_mbps": 4.9, "bandwidth_kind": "exact", "notes": ["under-voltage"]}
        self.nodes[-1] |= slow
        if boards > 10:
            self.nodes[5] |= {"agent": "offline", "online": False, "age_s": 4000.0}
            unknown = {"agent": "unknown", "online": None}
            self.nodes[7] |= unknown | {"age_s": None, "bandwidth_mbps": None}
        self.links = self._links()
        self.counts = True  # whether boards count their connections
        self.edges = self._edges()
        self.decisions = [
            self.decision(f"web-{k}", self.nodes[k % boards]["name"], NOW_UNIX_S - 40 * k)
            for k in range(min(60, 3 * boards))
        ]
        self.decisions[0] |= {
            "node": None,
            "why": "no board fits: 3 lack memory, 1 takes no pods",
            "outcome": "pending",
        }

    def rtt_ms(self, i: int, j: int) -> float:
        a, b = self.nodes[i], self.nodes[j]
        apart: float = math.hypot(a["x"] - b["x"], a["y"] - b["y"])
        return round(0.25 + 40 * math.pow(apart, 1.3), 3)

    def source(self, i: int, j: int) -> int:
        return (1, 1, 1, 4, 4, 3, 2)[(i * 31 + j * 31 + i * j) % 7]

    def _links(self) -> list[Json]:
        count = len(self.nodes)
        pairs = set()
        for i in range(count):
            near = sorted((j for j in range(count) if j != i), key=lambda j: self.rtt_ms(i, j))
            for j in [*near[:3], 0]:
                if i != j:
                    pairs.add((min(i, j), max(i, j)))
        return [self.link(i, j) for i, j in sorted(pairs)]

    def link(self, i: int, j: int) -> Json:
        source = SOURCES[self.source(i, j)]
        a, b = sorted((self.nodes[i]["name"], self.nodes[j]["name"]))
        tested = (i + j) % 3 == 0
        return {
            "a": a,
            "b": b,
            "rtt_ms": self.rtt_ms(i, j),
            "error_ms": 0.3,
            "source": source,
            "age_s": 20.0 if source in ("measured", "stale") else None,
            "loss": 0.02 if (i + j) % 11 == 0 else 0.0,
            "jitter_ms": 0.1,
            "flapping": (i + j) % 53 == 1,
            "bandwidth_mbps": 41.0 if tested else None,
            "bandwidth_kind": "exact" if tested else "unknown",
            "bandwidth_age_s": 100.0 if tested else None,
        }

    def _edges(self) -> list[Json]:
        """A shop of eleven services on each ten boards: the front's users, and who talks to whom.
        The last one is only declared, and one end alone reports the first."""
        draw = random.Random(len(self.nodes))
        names = [node["name"] for node in self.nodes]
        talks = (
            *(("192.0.2.7", "front", 12.0), ("front", "cart", 4.0), ("front", "catalog", 9.0)),
            *(("cart", "cart-db", 3.5), ("catalog", "catalog-db", 21.0), ("front", "pay", 0.4)),
            *(("pay", "bank", 0.1), ("front", "queue", 1.5), ("queue", "ship", 1.1)),
            *(("ship", "mail", 0.05), ("catalog", "search", 40.0), ("mail", "audit", 0.0)),
        )
        found = []
        for shop in range(max(1, len(names) // 10)):
            places = {name: draw.choice(names) for talk in talks for name in talk[:2]}
            for source, destination, mbps in talks:
                one, other = places[source], places[destination]
                mbps = round(mbps * draw.uniform(0.3, 1.6), 2)
                declared = destination == "audit"
                user = source == "192.0.2.7"
                rtt_ms = 0.0 if one == other else self.rtt_ms(names.index(one), names.index(other))
                found.append(
                    {
                        "source": f"192.0.2.{7 + shop}" if user else f"shop-{shop}/{source}",
                        "destination": f"shop-{shop}/{destination}",
                        "port": 8080,
                        "mbps": None if declared else mbps,
                        "hour_mbps": None if declared else round(mbps * 0.8, 2),
                        "declared_mbps": 2.0 if declared else None,
                        "requests_per_s": [round(3 * mbps, 1), round(40 * mbps, 1)],
                        "rtt_ms": rtt_ms,
                        "best_rtt_ms": 0.0,
                        "best_node": one if user else other,
                        "moves": f"shop-{shop}/{destination if user else source}",
                        "share": None if declared else min(1.0, mbps / 47) if rtt_ms else 0.0,
                        "one_sided": user,
                        "age_s": None if declared else 20.0,
                        "source_nodes": [[one, 1]],
                        "destination_nodes": [[other, 1]],
                    }
                )
        return found

    def traffic(self) -> Json:
        edges = self.edges if self.counts else []
        lines: dict[tuple[str, ...], Json] = {}
        for edge in edges:
            pair = tuple(sorted((edge["source_nodes"][0][0], edge["destination_nodes"][0][0])))
            if pair[0] != pair[1]:
                line = {"a": pair[0], "b": pair[1], "mbps": 0.0, "share": None, "edges": []}
                line = lines.setdefault(pair, line | {"source": "declared", "edges_total": 0})
                line["mbps"] += edge["mbps"] or edge["declared_mbps"] or 0.0
                line["edges"].append([edge["source"], edge["destination"]])
                line["edges_total"] += 1
                if edge["share"] is not None:
                    line["source"] = "counted"
                    line["share"] = min(1.0, (line["share"] or 0.0) + edge["share"])
        return {
            "at_unix_s": NOW_UNIX_S,
            **self.reporting(),
            "edges_total": len(edges),
            "lines_total": len(lines),
            "edges": edges[:300],
            "lines": list(lines.values())[:300],
        }

    def reporting(self) -> Json:
        names = [node["name"] for node in self.nodes] if self.counts else []
        return {"reporting": names, "report_age_s": 20.0 if self.counts else None}

    def decision(self, pod: str, node: str | None, unix_s: float) -> Json:
        return {
            "id": f"default/{pod}",
            "namespace": "default",
            "name": pod,
            "node": node,
            "strategy": "netsched",
            "why": "best in bandwidth: 93.1 Mbit/s, and 12 % CPU in use",
            "outcome": "bound",
            "times": 1,
            "unix_s": unix_s,
            "age_s": NOW_UNIX_S - unix_s,
        }

    def overview(self, unix_s: float | None) -> Json:
        nodes, links = self.nodes, self.links
        if unix_s is not None:
            nodes = [node | {"notes": [], "cpu_percent": 1.0} for node in nodes]
            nodes[1] |= {"notes": ["throttled"], "schedulable": False}
        return {
            "run": self.run,
            "stream_id": f"{self.run}:1",
            "cluster": "home",
            "version": "0.1.0",
            "strategy": "netsched",
            "leads": True,
            "lease_holder": "server_5be1",
            "now_unix_s": NOW_UNIX_S,
            "at_unix_s": NOW_UNIX_S if unix_s is None else unix_s,
            "live": unix_s is None,
            "history": {
                "from_unix_s": NOW_UNIX_S - 86_400,
                "to_unix_s": NOW_UNIX_S - 60,
                "step_s": 60,
            },
            "pods_exact": unix_s is None or unix_s > NOW_UNIX_S - 3600,
            "states_known": unix_s is None or unix_s > NOW_UNIX_S - 3600,
            "nodes": nodes,
            "links": links,
        }

    def pairs(self) -> Json:
        count = range(min(300, len(self.nodes)))  # the server spreads them over the names
        order = sorted(count, key=lambda i: (i % self.segments, self.rtt_ms(0, i)))
        return {
            "nodes": [node["name"] for node in self.nodes[: len(count)]],
            "order": order,
            "total": len(self.nodes),
            "sampled": len(self.nodes) > len(count),
            "at_unix_s": NOW_UNIX_S,
            "sources": SOURCES,
            "rtt_ms": [[None if i == j else self.rtt_ms(i, j) for j in count] for i in count],
            "source": [[0 if i == j else self.source(i, j) for j in count] for i in count],
            "tested": [[i, i + 1, 41.0, "exact"] for i in count[:-1:2]],
        }

    def board(self, name: str) -> Json | None:
        node = next((node for node in self.nodes if node["name"] == name), None)
        if node is None:
            return None
        links = [link for link in self.links if name in (link["a"], link["b"])]
        return node | {
            "address": "192.168.1.21",
            "hardware_model": "Raspberry Pi 4 Model B",
            "agent_version": "0.1.0",
            "lost_messages": 0,
            "allocatable": {"cpu_milli": 4000, "memory_bytes": 4 << 30, "pods": 110},
            "requested": {"cpu_milli": 500, "memory_bytes": 1 << 30, "pods": 1},
            "metrics": [],
            "links": links,
            "links_total": len(links),
            "traffic": {
                **self.reporting(),
                "edges": [
                    edge
                    for edge in (self.edges if self.counts else [])
                    if name in (edge["source_nodes"][0][0], edge["destination_nodes"][0][0])
                ],
            },
        }

    def history(self, name: str, since: float, until: float, step: int) -> Json:
        draw = random.Random(name)
        if since <= 0:
            since, until = NOW_UNIX_S + since, NOW_UNIX_S
        steps = max(1, min(1441, int((until - since) / step) + 1))

        def series(metric: str, peer: str, middle: float, swing: float) -> Json:
            phase = draw.uniform(0, 6)
            mean = [
                None
                if steps * 0.55 < i < steps * 0.58 or (steps - i) * step > self.measured_s
                else round(middle + swing * math.sin(phase + i / 20) + draw.gauss(0, swing / 6), 3)
                for i in range(steps)
            ]
            values = {"mean": mean, "min": mean, "max": mean}
            return {"name": metric, "peer": peer, **values}

        peers = [node["name"] for node in self.nodes if node["name"] != name][:5]
        return {
            "node": name,
            "from_unix_s": since,
            "step_s": step,
            "steps": steps,
            "series": [
                series("cpu_percent", "", 40, 25),
                series("memory_percent", "", 60, 5),
                series("bandwidth_mbps", "", 88, 5),
                series("used_mbps", "", 12, 9),
                series("cpu_celsius", "", 52, 6),
                series("packets_sent_per_s", "", 900, 500),
                series("packets_received_per_s", "", 1100, 600),
                series("disk_bytes_per_s", "", 2e6, 1e6),
                *(series("rtt_ms", peer, draw.uniform(1, 9), 0.6) for peer in peers),
            ],
        }

    def one_decision(self, ident: str) -> Json | None:
        decision = next((each for each in self.decisions if each["id"] == ident), None)
        if decision is None:
            return None
        draw = random.Random(ident)
        scores = [
            {
                "node": node["name"],
                "total": round(draw.uniform(0.2, 0.95), 4),
                "parts": {
                    "bandwidth": round(draw.random(), 3),
                    "cpu": round(draw.random(), 3),
                    "memory": round(draw.random(), 3),
                },
                "report_age_s": 3.1,
                "bandwidth_age_s": 310.0,
                "rtt_age_s": None,
            }
            for node in self.nodes[1:]
            if node["online"]
        ]
        for score in scores:
            if score["node"] == decision["node"]:
                score["total"] = 0.97
        scores.sort(key=lambda score: -score["total"])
        reasons = ["NodeUnschedulable: the node takes no pods"]
        return decision | {
            "better": "higher",
            "options": {"alpha": "0.5"},
            "scored_nodes": len(scores),
            "rejected_nodes": 1,
            "scores": scores,
            "rejected": [{"node": self.nodes[0]["name"], "reasons": reasons}],
            "rejected_by_filter": {"NodeUnschedulable": 1},
            "earlier": [],
        }


class Canned:
    """A running server. address: of the page. requested: the paths that were asked for."""

    def __init__(self, cluster: Cluster, server: ThreadingHTTPServer) -> None:
        self.cluster = cluster
        self.address = f"http://127.0.0.1:{server.server_address[1]}"
        self.requested: list[str] = []
        self.down = False
        self._streams: list[SimpleQueue[bytes | None]] = []
        self._sent = 1

    @property
    def streams(self) -> int:
        return len(self._streams)

    def send(self, event: str, data: Json) -> None:
        self._sent += 1
        text = f"id: {self.cluster.run}:{self._sent}\nevent: {event}\ndata: {json.dumps(data)}\n\n"
        for stream in self._streams:
            stream.put(text.encode())

    def stop(self) -> None:
        """Refuse everything, and end the streams."""
        self.down = True
        for stream in self._streams:
            stream.put(None)

    def start_again(self) -> None:
        self.cluster.run = "run-2"
        self.down = False


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    canned: Canned

    def do_GET(self) -> None:
        canned = self.canned
        canned.requested.append(self.path)
        url = urlsplit(self.path)
        if canned.down:
            self._json({"error": "the controller is starting"}, 503)
        elif url.path == "/":
            self._file("index.html")
        elif url.path.startswith("/static/"):
            self._file(url.path.removeprefix("/static/"))
        elif url.path == "/api/stream":
            self._stream()
        else:
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            answer = self._answer(url.path.removeprefix("/api/"), query)
            if answer is None:
                self._json({"error": "not found: look at the map"}, 404)
            else:
                self._json(answer)

    def _answer(self, path: str, query: dict[str, str]) -> Json | None:
        cluster = self.canned.cluster
        kind, _, rest = path.partition("/")
        if kind == "overview":
            return cluster.overview(float(query["unix_s"]) if "unix_s" in query else None)
        if kind == "pairs":
            return cluster.pairs()
        if kind == "traffic":
            return cluster.traffic()
        if kind == "nodes":
            return cluster.board(unquote(rest))
        if kind == "history":
            until = float(query.get("until_unix_s", NOW_UNIX_S))
            since = float(query["since_unix_s"])
            return cluster.history(query["node"], since, until, int(query["step_s"]))
        if kind == "decisions" and rest:
            return cluster.one_decision(unquote(rest))
        if kind == "decisions":
            before = float(query.get("before", math.inf))
            kept = [each for each in cluster.decisions if each["unix_s"] < before]
            return {"decisions": kept[: int(query.get("limit", 50))], "more": False}
        return None

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def _json(self, answer: Json, status: int = 200) -> None:
        self._send(status, "application/json", json.dumps(answer).encode())

    def _file(self, name: str) -> None:
        file = FILES / name
        if not file.is_file() or not file.resolve().is_relative_to(FILES.resolve()):
            self._json({"error": f"no file {name}"}, 404)
            return
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        self._send(200, kind, file.read_bytes())

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b": hello\n\n")
        self.wfile.flush()
        own: SimpleQueue[bytes | None] = SimpleQueue()
        streams = self.canned._streams
        streams.append(own)
        try:
            while not self.server.ended:  # type: ignore[attr-defined]
                try:
                    message = own.get(timeout=0.2)
                except Empty:
                    continue
                if message is None:
                    break
                self.wfile.write(message)
                self.wfile.flush()
        except OSError:
            pass  # the browser went away
        finally:
            streams.remove(own)
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    ended = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that closes a connection is no error."""


@contextmanager
def served(cluster: Cluster) -> Iterator[Canned]:
    handler = type("Handler", (_Handler,), {})
    server = _Server(("127.0.0.1", 0), handler)
    handler.canned = canned = Canned(cluster, server)  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield canned
    finally:
        server.ended = True
        server.shutdown()
        thread.join()
        server.server_close()
