"""Answers agents' requests for certificates: signs them, or says why not; see signing.py."""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from leadline_controller.framework.ports import (
    ClusterError,
    ConflictError,
    InvalidError,
    Leadership,
    NotFoundError,
)
from leadline_controller.kube.client import ApiServer
from leadline_controller.kube.reachability import ReachabilityLog
from leadline_controller.kube.reflector import Reflector
from leadline_controller.kube.signing import (
    SIGNER,
    IssuingSettings,
    RefusedError,
    Request,
    SigningError,
    Status,
    node_of,
    sign,
)
from leadline_controller.logs import ErrorLog
from leadline_controller.parsing.fields import FieldError
from leadline_controller.parsing.typed import decode

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_WATCH_S, _LATE_S, _TICK_S = (240, 300), 15.0, 1.0
_GONE = Status(certificate="gone")
_log = logging.getLogger(__name__)


class Issuer:
    """Answers the requests of agents, one after the other, while this controller leads.

    nodes: the names of the nodes, None while they are not listed.
    """

    def __init__(
        self,
        server: ApiServer,
        reachability: ReachabilityLog,
        settings: IssuingSettings,
        leadership: Leadership,
        nodes: Callable[[], Collection[str] | None],
    ) -> None:
        self._server, self._settings = server, settings
        self._leadership, self._nodes = leadership, nodes
        self._open: dict[str, Request] = {}
        self._errors = ErrorLog(_log)
        self._reflector: Reflector[Request] = Reflector(
            *(server, reachability, _WATCH_S, _LATE_S, PATH, _read),
            changed=lambda request: request,
            deleted=lambda request: msgspec.structs.replace(request, status=_GONE),
            placeholders=self._unreadable,
            selected={"fieldSelector": f"spec.signerName={SIGNER}"},
        )

    async def run(self) -> None:
        """Follow the requests and answer them, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            while True:
                await asyncio.sleep(_TICK_S)
                nodes = self._nodes()
                for name in () if nodes is None else tuple(self._open):
                    # It may have been answered or deleted while another one was signed.
                    if self._leadership.leads() and (request := self._open.pop(name, None)):
                        await self._answer(request, nodes or ())

    async def _follow(self) -> None:
        while True:
            requests, version = await self._reflector.list()
            self._open = {each.metadata.name: each for each in requests if each.is_open}
            if version:
                await self._reflector.watch(version, self._changed)
            else:
                await self._reflector.wait_until_readable()

    def _changed(self, request: Request) -> None:
        if request.is_open:
            self._open[request.metadata.name] = request
        else:
            self._open.pop(request.metadata.name, None)

    def _unreadable(self, error: ClusterError) -> tuple[Request, ...]:
        self._errors.failed(error, "agents' requests for certificates can't be read: %s")
        return ()

    async def _answer(self, request: Request, nodes: Collection[str]) -> None:
        """Sign or deny. What fails is tried again; what is gone or answered meanwhile is not."""
        name = request.metadata.name
        try:
            try:
                node = node_of(request, nodes)
                signed = await asyncio.to_thread(sign, request.spec.request, node, self._settings)
            except RefusedError as error:
                _log.warning("certificate request %s is denied: %s", name, error)
                await self._decide(name, "Denied", str(error))
                return
            if not request.status.conditions:
                await self._decide(name, "Approved", f"an agent's pod on the node {node}")
            await self._write(f"{PATH}/{name}/status", {"certificate": signed})
            _log.info("node %s: its agent has a certificate (%s)", node, name)
            self._errors.succeeded()
        except (SigningError, OSError) as error:
            self._open.setdefault(name, request)
            self._errors.failed(error, "issuing.authority_cert_file can't sign: %s; trying again")
        except ClusterError as error:
            if not isinstance(error, ConflictError | InvalidError | NotFoundError):
                self._open.setdefault(name, request)
            self._errors.failed(error, "certificate request %s: %s", name)

    async def _decide(self, name: str, kind: str, why: str) -> None:
        condition = {"type": kind, "status": "True", "reason": "Leadline", "message": why}
        await self._write(f"{PATH}/{name}/approval", {"conditions": [condition]})

    async def _write(self, path: str, status: dict[str, Any]) -> None:
        await self._server.patch(path, {"status": status}, self._leadership)


def _read(manifest: object) -> Request | None:
    try:
        return decode(manifest, Request, "certificatesigningrequest")
    except FieldError as error:
        _log.warning("%s; the request is left out", error)
        return None
