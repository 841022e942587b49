"""What decides about pods, made of the settings: the strategy, and the filters beside it."""

from collections.abc import Mapping
from random import Random

from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule, Strategy
from leadline_controller.framework.options import OptionError, build
from leadline_controller.framework.ports import LeaseStore
from leadline_controller.preferences import rule
from leadline_controller.settings import Settings, with_strategy
from leadline_controller.strategies import DEFAULT_STRATEGY, EARLIER_DEFAULT, STRATEGIES


def strategy(name: str, options: Mapping[str, object]) -> Strategy:
    """The strategy of this name with its options set. Raises OptionError, PluginError."""
    if name not in STRATEGIES:
        raise OptionError(f"strategy {name!r}: unknown; known: {', '.join(STRATEGIES)}")
    built: Strategy = build(STRATEGIES[name], options)
    return built


async def in_force(settings: Settings, lease: LeaseStore) -> Settings:
    """The settings with a strategy: the one that they name, else the one that this installation
    ran, by the Lease, which all its controllers share; in a new installation the default. Raises
    ConfigError, and ClusterError where the Lease has to be read and cannot be."""
    if settings.strategy:
        return settings
    record = await lease.read()
    if record is None:
        return with_strategy(settings, DEFAULT_STRATEGY)
    return with_strategy(settings, record.strategy or EARLIER_DEFAULT)


def scheduling_rule(settings: Settings) -> Rule:
    """By what the scheduler decides. Raises OptionError, PluginError."""
    return Rule(
        strategy(settings.strategy or DEFAULT_STRATEGY, settings.options),
        FILTERS,
        Random(settings.seed),  # noqa: S311  # breaks ties, no secret
        rule(settings.preferences),
        letter=settings.letter,
        seed=settings.seed,
    )
