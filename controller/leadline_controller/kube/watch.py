"""The nodes and pods of an API server, all that decides where pods can be, and every change to
these, for as long as one listens.

Each kind has a watch of its own, which is taken up where it was when it ends. When the server no
longer keeps the changes since then (410), every kind is listed again, because a list of one is
only true beside a list of the others.
"""

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

from leadline_controller.framework.ports import (
    ClusterChange,
    NodeChanged,
    NodeDeleted,
    PodChanged,
    PodDeleted,
    Relisted,
    ResourceChanged,
    ResourceDeleted,
)
from leadline_controller.framework.resources import Resource
from leadline_controller.kube.client import ApiServer
from leadline_controller.kube.contact import Contact
from leadline_controller.kube.convert import Converter
from leadline_controller.kube.reflector import Reflector

# The server sends a bookmark about once a minute, so this long without a byte is a dead peer.
SILENCE_S = 150.0
# What there is beside nodes and pods: its kind and where it is. Pods that need nothing of it are
# placed also where it may not be read.
RESOURCES = {
    "Namespace": "/api/v1/namespaces",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "CSIDriver": "/apis/storage.k8s.io/v1/csidrivers",
    "CSIStorageCapacity": "/apis/storage.k8s.io/v1/csistoragecapacities",
    "VolumeAttachment": "/apis/storage.k8s.io/v1/volumeattachments",
}


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
        lambda node: NodeDeleted(node.name),
        silence_s,
    )
    pods = Reflector(
        server, contact, "/api/v1/pods", convert.pod, PodChanged, PodDeleted, silence_s
    )
    others = [_reflector(kind, server, contact, convert, silence_s) for kind in RESOURCES]
    kinds: tuple[Reflector[Any], ...] = (nodes, pods, *others)
    while True:
        all_nodes, nodes_version = await nodes.list()
        all_pods, pods_version = await pods.list()
        lists = [await other.list() for other in others]
        yield Relisted(all_nodes, all_pods, tuple(found for all_, _ in lists for found in all_))
        changes: asyncio.Queue[ClusterChange | None] = asyncio.Queue()
        versions = (nodes_version, pods_version, *(version for _, version in lists))
        followers = [
            asyncio.create_task(_then_stop(kind, version, changes))
            for kind, version in zip(kinds, versions, strict=True)
        ]
        try:
            while (change := await changes.get()) is not None:
                yield change
        finally:
            await _end(followers)


def _reflector(
    kind: str, server: ApiServer, contact: Contact, convert: Converter, silence_s: float
) -> Reflector[Resource]:
    path = RESOURCES[kind]
    return Reflector(
        server,
        contact,
        path,
        partial(convert.resource, kind),
        ResourceChanged,
        ResourceDeleted,
        silence_s,
        partial(convert.unreadable, path.rpartition("/")[2]),
    )


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
