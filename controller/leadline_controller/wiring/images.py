"""How registries are asked for the layers of images: by which rules, and as whom."""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Protocol

from leadline_controller.cluster.known_layers import Layers
from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.image_layers import ARCH_LABEL
from leadline_controller.framework.ports import ClusterError, ImagePull
from leadline_controller.parsing.fields import FieldError
from leadline_controller.registry.lookup import ImageLookup, LookupSettings
from leadline_controller.registry.registries import (
    PullLogins,
    Registries,
    load_registries,
    read_pull_secret,
)

log = logging.getLogger(__name__)


class PullSource(Protocol):
    """Where image pulls and pull secrets come from."""

    def watch_pulls(self) -> AsyncGenerator[ImagePull, None]:
        """Every pull that a kubelet reports, for ever."""
        ...

    async def read_secret(self, key: str) -> bytes:
        """A secret, as JSON, by namespace/name. Raises ClusterError."""
        ...


def image_lookup(
    settings: LookupSettings,
    pulls: PullSource | None,
    state: ClusterState,
    learn: Callable[[str, str, Mapping[str, Layers]], set[str]],
    now_s: Callable[[], float],
) -> tuple[ImageLookup | None, AbstractAsyncContextManager[object]]:
    """What asks registries for the layers of the state's images, None where nobody is to be asked,
    and the context in which it can. learn: as ImageState.learn."""
    registries = None if pulls is None else _registries(settings)
    if pulls is None or registries is None:
        return None, nullcontext()
    # It takes memory, so only who asks registries imports it.
    from leadline_controller.registry.client import RegistryClient

    def architectures() -> frozenset[str]:
        labels = (node.labels.get(ARCH_LABEL, "") for node in state.nodes().values())
        return frozenset(label for label in labels if label)

    client = RegistryClient(registries)
    lookup = ImageLookup(
        *(settings, registries, client),
        lambda: state.images.wanted(pod for pod, _ in state.pods()),
        architectures,
        learn,
        partial(_logins, pulls),
        now_s,
    )
    return lookup, client


def _registries(settings: LookupSettings) -> Registries | None:
    """The rules by which registries are asked; None if none is to be asked."""
    if not settings.enabled:
        return None
    if settings.registries_file is None:
        return Registries()
    try:
        registries = load_registries(settings.registries_file)
    except FieldError as error:  # it may name mirrors, so nobody is asked instead
        log.error("%s; no registry is asked for layers", error)
        return None
    for warning in registries.warnings:
        log.warning("%s", warning)
    return registries


async def _logins(source: PullSource, key: str) -> PullLogins:
    """The credentials of a pull secret; none while it cannot be read."""
    try:
        return read_pull_secret(await source.read_secret(key))
    except ClusterError as error:
        log.warning("pull secret %s: %s", key, error)
        return {}
