"""An extender that listens on a loopback port of its own, and requests to it."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from leadline_controller.extender.server import ExtenderServer, Limits
from leadline_controller.serve.settings import ExtenderSettings, TlsFiles

from tests.controller.extender.harness import PATIENCE_S, ExtenderHarness
from tests.support.certificates import Authority, Certificate

BRIEF = Limits(answer_s=0.3, head_s=PATIENCE_S)
SHORT = Limits(answer_s=0.3, head_s=1.0, connections=3)


@asynccontextmanager
async def answering(
    harness: ExtenderHarness, limits: Limits | None = None, tls: TlsFiles | None = None
) -> AsyncIterator[str]:
    """An extender in this event loop, which binds where it has `tls`; yields host:port."""
    settings = ExtenderSettings("127.0.0.1:0", tls, bind=tls is not None)
    server = ExtenderServer(settings, harness.extender_service, limits)
    address = await server.start()
    try:
        yield address
    finally:
        await server.stop()
        await harness.extender_service.close()


async def post(
    address: str, verb: str, body: bytes, shown: ssl.SSLContext | None = None
) -> tuple[int, Any]:
    url = f"{'http' if shown is None else 'https'}://{address}/{verb}"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=body, ssl=shown or True) as answer,
    ):
        return answer.status, await answer.json()


@dataclass(frozen=True)
class Secured:
    """What the extender has, and what kube-scheduler shows."""

    tls: TlsFiles
    shown: ssl.SSLContext


def files(certificate: Certificate) -> TlsFiles:
    return TlsFiles(certificate.ca_file, certificate.cert_file, certificate.key_file)


def client_context(authority: Authority, shown: Certificate | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.ca_file)
    if shown is not None:
        context.load_cert_chain(shown.cert_file, shown.key_file)
    return context


async def read_to_the_end(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        return await reader.read()


HEAD = b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
