"""The gateway of a lab's requests: it sends them, spreads them over the replicas, and counts them.

It stands for the ingress and for the paper's Locust on the master. It is a process of its own on
the lab's server; the test tells it what to do in a JSON file, and reads what it measured.

    python -m tests.lab.gateway ORDERS MEASURED METRICS_PORT PORT PATH
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TextIO

COUNTER = 'requests_total{service="web"}'
_TIMEOUT_S = 10.0
_MOST_AT_ONCE = 200


class Gateway:
    """orders: a file with per_s, and backends (address and node); path: of the requests to port.
    measured: gets a line for each request: when it was sent, the node, the milliseconds until it
    was connected and from then until it was answered, and whether it was."""

    def __init__(self, orders: Path, measured: TextIO, port: int, path: str) -> None:
        self._orders = orders
        self._measured = measured
        self._port = port
        self._path = path
        self._count = 0

    async def run(self, metrics_port: int) -> None:
        server = await asyncio.start_server(self._metrics, "127.0.0.1", metrics_port)
        async with server, asyncio.TaskGroup() as group:
            turns, due_s, busy = count(), time.monotonic(), set[asyncio.Task[None]]()
            while True:
                with suppress(OSError, ValueError):
                    orders = json.loads(self._orders.read_text())
                backends, per_s = orders["backends"], orders["per_s"]
                if per_s <= 0 or not backends or len(busy) >= _MOST_AT_ONCE:
                    await asyncio.sleep(0.1)
                    due_s = time.monotonic()
                    continue
                await asyncio.sleep(max(due_s - time.monotonic(), 0))
                due_s = max(due_s, time.monotonic() - 1.0) + 1 / per_s
                address, node = backends[next(turns) % len(backends)]
                task = group.create_task(self._request(address, node))
                busy.add(task)
                task.add_done_callback(busy.discard)

    async def _request(self, address: str, node: str) -> None:
        self._count += 1
        sent_s, start_s = time.time(), time.perf_counter()
        connected_s, ok = start_s, False
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(address, self._port)
                connected_s = time.perf_counter()
                writer.write(f"GET {self._path} HTTP/1.0\r\nHost: web\r\n\r\n".encode())
                ok = b" 200 " in (await reader.read())[:40]
                writer.close()
        except (OSError, TimeoutError):
            pass
        end_s = time.perf_counter()
        connect_ms, answer_ms = (connected_s - start_s) * 1000, (end_s - connected_s) * 1000
        line = f"{sent_s:.3f} {node} {connect_ms:.2f} {answer_ms:.2f} {ok:d}\n"
        self._measured.write(line)

    async def _metrics(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        text = f"# TYPE requests_total counter\n{COUNTER} {self._count}\n"
        head = f"HTTP/1.0 200 OK\r\nContent-Length: {len(text)}\r\n\r\n"
        writer.write((head + text).encode())
        await writer.drain()
        writer.close()


def main(orders: str, measured: str, metrics_port: str, port: str, path: str) -> None:
    with Path(measured).open("w", buffering=1) as file:
        gateway = Gateway(Path(orders), file, int(port), path)
        asyncio.run(gateway.run(int(metrics_port)))


if __name__ == "__main__":
    main(*sys.argv[1:])
