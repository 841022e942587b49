"""The nodes and pods of an API server and every change to them, for as long as one listens.

Each kind has a watch of its own, which is taken up where it was when it ends. When the server no
longer keeps the changes since then (410), both kinds are listed again, because a list of one is
only true beside a list of the other.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from leadline_controller.core.ports import (
    ClusterChange,
    Listed,
    NodeChanged,
    NodeGone,
    PodChanged,
    PodGone,
)
from leadline_controller.kube.client import ApiServer
from leadline_controller.kube.contact import Contact
from leadline_controller.kube.convert import Converter
from leadline_controller.kube.reflector import Reflector

# The server sends a bookmark about once a minute, so this long without a byte is a dead peer.
SILENCE_S = 150.0


async def watch_cluster(
    server: ApiServer, silence_s: float = SILENCE_S, contact: Contact | None = None
) -> AsyncGenerator[ClusterChange, None]:
    """What there is, then every change, for ever; see Cluster.watch. contact: of all that use
    the server, so that it is missed once."""
    contact, convert = contact or Contact(server.url), Converter()
    nodes = Reflector(
        server,
        contact,
        "/api/v1/nodes",
        convert.node,
        NodeChanged,
        lambda node: NodeGone(node.name),
        silence_s,
    )
    pods = Reflector(server, contact, "/api/v1/pods", convert.pod, PodChanged, PodGone, silence_s)
    while True:
        all_nodes, nodes_version = await nodes.list()
        all_pods, pods_version = await pods.list()
        yield Listed(all_nodes, all_pods)
        changes: asyncio.Queue[ClusterChange | None] = asyncio.Queue()
        followers = [
            asyncio.create_task(_then_stop(nodes, nodes_version, changes)),
            asyncio.create_task(_then_stop(pods, pods_version, changes)),
        ]
        try:
            while (change := await changes.get()) is not None:
                yield change
        finally:
            await _end(followers)


async def _then_stop(
    kind: Reflector[Any], version: str, changes: asyncio.Queue[ClusterChange | None]
) -> None:
    try:
        await kind.follow(version, changes.put_nowait)
    finally:
        changes.put_nowait(None)


async def _end(followers: list[asyncio.Task[None]]) -> None:
    """End all, and raise what one of them died of: a fault of ours must not pass for a 410."""
    for follower in followers:
        follower.cancel()
    for outcome in await asyncio.gather(*followers, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome
