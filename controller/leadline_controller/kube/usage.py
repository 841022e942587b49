"""Asks the metrics API what pods use. Most clusters have metrics-server, and none needs it here."""

import asyncio
from collections.abc import Sequence

from msgspec import Raw

from leadline_controller.framework.ports import PodUsage, UnavailableError
from leadline_controller.kube.client import ApiServer
from leadline_controller.kubeobjects.schema import Part
from leadline_controller.kubeobjects.usage import read_usage
from leadline_controller.parsing.fields import FieldError
from leadline_controller.parsing.typed import decode

_PATH = "/apis/metrics.k8s.io/v1beta1/pods"
_AT_ONCE = 50  # pods that are read before others have their turn


class _List(Part):
    items: tuple[Raw, ...] = ()


async def pod_usage(server: ApiServer) -> Sequence[PodUsage]:
    """What each pod uses, as far as it can be read. metrics-server knows no pages. Raises
    subclasses of ClusterError."""
    try:
        listed = decode(await server.get(_PATH), _List, _PATH)
    except FieldError as error:
        raise UnavailableError(f"the answer is not a list: {error}") from None
    found = []
    for number, manifest in enumerate(listed.items):
        if (usage := read_usage(manifest)) is not None:
            found.append(usage)
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return found
