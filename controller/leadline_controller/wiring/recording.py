"""What a recording is told, and what a controller is when it begins to record."""

from collections.abc import Callable
from dataclasses import asdict

from leadline_controller import __version__
from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.options import values_of
from leadline_controller.framework.ports import Clock, Leadership
from leadline_controller.history.recorded import Began
from leadline_controller.history.recording import Recording
from leadline_controller.history.times import Moment
from leadline_controller.settings import Settings
from leadline_controller.telemetry.state import TelemetryState


def recording(
    settings: Settings,
    rule: Rule,
    state: ClusterState,
    telemetry: TelemetryState,
    clock: Clock,
    leadership: Leadership,
    now: Callable[[], Moment],
    seed: int,
) -> Recording | None:
    """The recording of these states and of what is decided from them, None where none is kept.
    seed: see DecisionStep."""
    if not settings.recording.enabled:
        return None

    def began(at_s: float) -> Began:
        moment = now()
        unix_s = moment.unix_s(moment)
        return Began(
            unix_s=None if unix_s is None else unix_s - (clock.now_s() - at_s),
            version=__version__,
            cluster=settings.cluster,
            strategy=rule.strategy.name,
            options={name: str(value) for name, value in values_of(rule.strategy).items()},
            seed=seed,
            preferences="off" if rule.prefer is None else str(settings.preferences),
            letter=rule.letter,
            assumed_load=settings.assumed_load,
            scheduler_name=settings.scheduler_name,
            ttl=asdict(settings.ttl),
            is_passive=telemetry.is_passive,
            preemption=settings.preemption,
            batch_window_s=settings.batch_window_s,
        )

    made = Recording(
        settings.recording,
        clock.now_s,
        leadership.leads,
        began,
        state.profiled,
        state.shown,
        settings.ttl,
    )
    telemetry.observe = made.put
    return made
