"""Plug-ins: reads the entry points that installed packages declare, and loads them."""

import logging
from importlib.metadata import EntryPoint, entry_points
from typing import Any

log = logging.getLogger(__name__)

STRATEGIES = "leadline.strategies"
COMMANDS = "leadline.commands"


class PluginError(Exception):
    """A plug-in that cannot be used. str() is one line: the package, the entry point, the problem
    and what to do."""

    def __init__(self, plugin: EntryPoint, problem: str, remedy: str) -> None:
        message = f"{described(plugin)}: {problem}; {remedy}, or uninstall the package"
        super().__init__(" ".join(message.split()))  # numpy's import errors, say, have many lines


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


def load(plugin: EntryPoint) -> Any:
    """Import what the entry point names. Raises PluginError, whatever the import raises."""
    try:
        return plugin.load()
    except (Exception, SystemExit) as error:  # an import runs any code
        problem = f"cannot be imported: {type(error).__name__}: {error}"
        raise PluginError(plugin, problem, "install what it needs") from error


def origin(plugin: EntryPoint) -> str:
    """The distribution that declares the entry point, and its version."""
    return f"{plugin.dist.name} {plugin.dist.version}" if plugin.dist else "an unknown package"


def described(plugin: EntryPoint) -> str:
    """The plug-in, for a message: "strategy plug-in NAME 1.0, entry point NAME = module:object"."""
    kind = "strategy" if plugin.group == STRATEGIES else "command"
    return f"{kind} plug-in {origin(plugin)}, entry point {plugin.name} = {plugin.value}"
