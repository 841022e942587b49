"""The registry of strategies: the built-in ones, and those of installed plug-ins."""

import logging
from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from dataclasses import MISSING, fields, is_dataclass
from functools import cached_property
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, get_args

from leadline_controller.parsing.entry_points import STRATEGIES as GROUP
from leadline_controller.parsing.entry_points import PluginError, declared, described, load, origin
from leadline_controller.parsing.fields import quoted

if TYPE_CHECKING:  # numpy takes long to import, and the names need none of it
    from leadline_controller.framework.cycle import Strategy

log = logging.getLogger(__name__)


class StrategyRegistry(Mapping[str, "type[Strategy]"]):
    """Strategy classes by name: the built-in ones in their order, then those of plug-ins.

    A lookup imports the class, and raises PluginError where the plug-in does not provide it. `in`,
    `len` and iteration import nothing, and log the plug-ins that are ignored because of their name.
    `items()` and `values()` import every class, and leave out the plug-ins that do not provide
    theirs, with one line in the log for each.
    """

    def __init__(self, package: str, built_in: Mapping[str, str]) -> None:
        """built_in: name -> "module:class", the module in `package`."""
        self.built_in = {name: f"{package}.{target}" for name, target in built_in.items()}
        self._loaded: dict[str, type[Strategy]] = {}
        self._reported: set[str] = set()

    @cached_property
    def _plugins(self) -> Mapping[str, EntryPoint]:
        found: dict[str, EntryPoint] = {}
        for each in declared(GROUP):
            holder = "Leadline" if each.name in self.built_in else None
            if holder is None and each.name in found:
                holder = origin(found[each.name])
            if holder is None:
                found[each.name] = each
                continue
            log.warning(
                "%s: ignored, because %s has a strategy of this name; rename the entry point or "
                "uninstall the package",
                described(each),
                holder,
            )
        return found

    def __getitem__(self, name: str) -> "type[Strategy]":
        if name not in self._loaded:
            if name in self.built_in:
                self._loaded[name] = EntryPoint(name, self.built_in[name], GROUP).load()
            else:
                plugin = self._plugins[name]
                made = load(plugin)
                if problem := defect(made, name):
                    raise PluginError(plugin, f"is not a strategy: {problem}", "correct the class")
                self._loaded[name] = made
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._plugins or name in self.built_in

    def __iter__(self) -> Iterator[str]:
        yield from self.built_in
        yield from self._plugins

    def __len__(self) -> int:
        return len(self.built_in) + len(self._plugins)

    def items(self) -> ItemsView[str, "type[Strategy]"]:
        """Name and class of every strategy that can be used."""
        return self._usable().items()

    def values(self) -> ValuesView["type[Strategy]"]:
        """The class of every strategy that can be used."""
        return self._usable().values()

    def _usable(self) -> Mapping[str, "type[Strategy]"]:
        usable = {}
        for name in self:
            try:
                usable[name] = self[name]
            except PluginError as error:
                if name not in self._reported:
                    log.error("%s", error)
                self._reported.add(name)
        return usable


def defect(made: Any, name: str) -> str | None:
    """What a strategy of this name must have and `made` has not; None if it has everything."""
    from leadline_controller.framework.cycle import Better
    from leadline_controller.framework.node_metrics import METRICS

    if not (isinstance(made, type) and is_dataclass(made)):
        return f"expected a dataclass, got {quoted(made)}"
    better, measured = get_args(Better), (*METRICS, "rtt_ms")
    rules: Mapping[str, tuple[Callable[[Any], bool], str]] = {
        "name": (lambda it: it == name, f"the entry point's name, {name!r}"),
        "better": (lambda it: it in better, " or ".join(better)),
        "paper": (lambda it: isinstance(it, str) and it != "", "a text"),
        "needs": (
            lambda it: isinstance(it, tuple) and all(each in measured for each in it),
            f"a tuple of {', '.join(measured)}",
        ),
        "score": (callable, "a method"),
        "charge": (callable, "a method"),
    }
    for attribute, (holds, expected) in rules.items():
        found = getattr(made, attribute, None)
        if not holds(found):
            return f"{attribute}: expected {expected}, got {quoted(found)}"
    for each in fields(made):
        if each.init and each.default is MISSING and each.default_factory is MISSING:
            return f"{each.name}: expected a default, got none"
    return None
