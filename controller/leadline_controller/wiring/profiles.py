"""What decides about pods, made of the settings: the strategy, and the filters beside it."""

from collections.abc import Mapping
from random import Random

from leadline_controller.config import Settings
from leadline_controller.filters import BIND_FILTERS, EXTENDER_FILTERS, FILTERS
from leadline_controller.framework.cycle import Strategy, filters_with
from leadline_controller.framework.options import OptionError, build
from leadline_controller.preferences import rule
from leadline_controller.scheduling.extender_service import ExtenderProfile
from leadline_controller.scheduling.scheduler import SchedulingProfile
from leadline_controller.strategies import STRATEGIES


def strategy(name: str, options: Mapping[str, object]) -> Strategy:
    """The strategy of this name with its options set. Raises OptionError, PluginError."""
    if name not in STRATEGIES:
        raise OptionError(f"strategy {name!r}: unknown; known: {', '.join(STRATEGIES)}")
    built: Strategy = build(STRATEGIES[name], options)
    return built


def extender_profile(settings: Settings, how: SchedulingProfile) -> ExtenderProfile:
    """The extender's profile, for the pods that kube-scheduler places."""
    own = filters_with({name: FILTERS[name] for name in EXTENDER_FILTERS}, how.strategy)
    every = settings.extender is not None and settings.extender.every_filter
    at_binding = FILTERS if every else BIND_FILTERS
    return ExtenderProfile(
        strategy=how.strategy,
        filters=filters_with(FILTERS, how.strategy) if every else own,
        own=own,
        at_binding=filters_with({name: FILTERS[name] for name in at_binding}, how.strategy),
        random=how.random,
        profiles=how.profiles,
        check_unmodelled=every,
        warm_up_s=how.warm_up_s,
    )


def scheduling_profile(settings: Settings) -> SchedulingProfile:
    """The scheduler's profile. Raises OptionError, PluginError."""
    return SchedulingProfile(
        strategy=strategy(settings.strategy, settings.options),
        filters=FILTERS,
        random=Random(settings.seed),  # noqa: S311  # breaks ties, no secret
        prefer=rule(settings.preferences),
        scheduler_name=settings.scheduler_name,
        warm_up_s=settings.warm_up_s,
        batch_window_s=settings.batch_window_s,
        suggest_interval_s=settings.suggest_interval_s,
        preemption=settings.preemption,
    )
