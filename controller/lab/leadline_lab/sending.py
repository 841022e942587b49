"""What the demo's pods do: each sends data from its board to the lab's server."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping

from leadline_lab import network
from leadline_lab.spec import SERVER, LabSpec

_TIMEOUT_S = 60.0
_READ_BYTES = 65_536


async def sent_s(spec: LabSpec, boards: Mapping[str, str], mb: float) -> dict[str, float]:
    """Send `mb` MB (10^6 bytes) for each pod over TCP, all at once, and return after how many
    seconds its data had arrived. boards: pod -> board of a lab that is up; the caller is in its
    server's namespace. Raises LabError, and OSError (TimeoutError after 60 s is one)."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(_READ_BYTES):
            pass
        writer.close()  # tells the sender that all has arrived

    async def send(board: str, address: tuple[str, int]) -> float:
        connect = asyncio.to_thread(network.connect_in, spec.namespace(board), address)
        reader, writer = await asyncio.open_connection(sock=await connect)
        await connected.wait()
        started_s = time.monotonic()
        writer.write(bytes(round(mb * 1e6)))
        writer.write_eof()
        await reader.read()
        writer.close()
        return time.monotonic() - started_s

    connected = asyncio.Barrier(max(len(boards), 1))
    async with await asyncio.start_server(take, spec.address(SERVER)) as server:
        address = server.sockets[0].getsockname()
        async with asyncio.timeout(_TIMEOUT_S):
            seconds = await asyncio.gather(*(send(board, address) for board in boards.values()))
    return dict(zip(boards, seconds, strict=True))


def computed_s(spec: LabSpec, boards: Mapping[str, str], mb: float) -> dict[str, float]:
    """How long that would take, if a board's pods shared the rate of its link equally and TCP took
    nothing of it. A link that is not shaped takes no time."""
    pods = Counter(boards.values())
    rates = {board.name: board.rate_mbps for board in spec.boards}
    return {
        pod: pods[board] * mb * 8 / rate if (rate := rates[board]) else 0.0
        for pod, board in boards.items()
    }
