"""Real connections for tests and benchmarks of connection tracking, between two addresses.

    python -m tests.support.conntrack_load serve ADDRESS PORT
    python -m tests.support.conntrack_load hold ADDRESS PORT COUNT NEW_PER_S SECONDS
    python -m tests.support.conntrack_load send ADDRESS PORT COUNT BYTES
    python -m tests.support.conntrack_load datagrams ADDRESS PORT COUNT BYTES

`serve` sends back what it gets, over TCP and UDP. `hold` keeps COUNT connections open and opens
NEW_PER_S short ones beside them. `send` opens COUNT connections in turn and `datagrams` sends COUNT
packets from one port, with BYTES each, and they wait for the answers.
"""

import asyncio
import resource
import socket
import sys
import time

SHORT_BYTES = 2_000  # that a short connection sends, and gets back


class _Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        self._transport.sendto(data, address)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve(address: str, port: int) -> None:
    """Send back what comes, until it is ended."""
    server = await asyncio.start_server(_answer, address, port, backlog=4096)
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(_Echo, local_addr=(address, port))
    print("ready", flush=True)
    await server.serve_forever()


async def short(address: str, port: int, size: int = SHORT_BYTES) -> None:
    """One connection that sends `size` bytes, gets them back and ends."""
    reader, writer = await asyncio.open_connection(address, port)
    writer.write(bytes(size))
    writer.write_eof()
    got = 0
    while data := await reader.read(1 << 16):
        got += len(data)
    writer.close()
    assert got == size


async def hold(address: str, port: int, count: int, new_per_s: float, seconds: float) -> None:
    """Keep `count` connections open, each of which says something now and then."""
    held = []
    for _ in range(count):
        held.append(await asyncio.open_connection(address, port))
    print("ready", flush=True)
    until_s, opened, began_s = time.monotonic() + seconds, 0, time.monotonic()
    tasks: set[asyncio.Task[None]] = set()
    while (now_s := time.monotonic()) < until_s:
        for _ in range(int((now_s - began_s) * new_per_s) - opened):
            opened += 1
            task = asyncio.create_task(short(address, port))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        for _, writer in held[:: max(1, count // 50)]:
            writer.write(b"x" * 100)
        await asyncio.sleep(0.05)
    await asyncio.gather(*tasks)
    for _, writer in held:
        writer.close()


async def send(address: str, port: int, count: int, size: int) -> None:
    """One connection after the other."""
    for _ in range(count):
        await short(address, port, size)


def datagrams(address: str, port: int, count: int, size: int) -> None:
    """Datagrams from one port, each of which waits for its answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.settimeout(10)
        own.connect((address, port))
        for _ in range(count):
            own.send(bytes(size))
            assert len(own.recv(1 << 16)) == size


def main() -> None:
    """Run it as a program."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    what, address, port, *more = sys.argv[1:]
    numbers = [float(each) for each in more]
    match what:
        case "serve":
            asyncio.run(serve(address, int(port)))
        case "hold":
            asyncio.run(hold(address, int(port), int(numbers[0]), *numbers[1:]))
        case "send":
            asyncio.run(send(address, int(port), *map(int, numbers)))
        case "datagrams":
            datagrams(address, int(port), *map(int, numbers))


if __name__ == "__main__":
    main()
