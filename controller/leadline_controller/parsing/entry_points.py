"""Reads the entry points that installed packages declare."""

import logging
from importlib.metadata import EntryPoint, entry_points

log = logging.getLogger(__name__)


def declared(group: str) -> list[EntryPoint]:
    """The entry points of a group, by the names of their distributions. Empty, with a line in the
    log, where the metadata of any installed package cannot be read."""
    try:
        return sorted(entry_points(group=group), key=lambda each: (origin(each), each.name))
    except Exception as error:  # noqa: BLE001  # what goes wrong is up to any package
        log.error(
            "entry points in the group %s are not available, because the metadata of an installed "
            "package cannot be read: %r; find the package with `pip check` and install it again",
            group,
            error,
        )
        return []


def origin(entry_point: EntryPoint) -> str:
    """The distribution that declares the entry point, and its version."""
    distribution = entry_point.dist
    return f"{distribution.name} {distribution.version}" if distribution else "an unknown package"
