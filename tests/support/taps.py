"""What a real controller is told and decides, as entries of a recording, in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from leadline_controller.framework.options import value_text, values_of
from leadline_controller.history.record import DecisionRecord
from leadline_controller.history.recorded import (
    Began,
    Changed,
    Decided,
    Entry,
    Learnt,
    Pulled,
    Recorded,
)
from leadline_controller.telemetry.accepted import Born, Pinged, Reported, Tested
from leadline_controller.telemetry.state import TimesToLive
from leadline_controller.wiring.controller import Controller


def tap(controller: Controller, unix_s: float | None) -> list[Entry]:
    """The entries, which grow from now on. unix_s: the wall clock's time now."""
    settings, now_s = controller.settings, controller.clock.now_s
    began = Began(
        unix_s,
        "test",
        settings.cluster,
        controller.rule.strategy.name,
        {name: value_text(value) for name, value in values_of(controller.rule.strategy).items()},
        controller.step.seed,
        str(settings.preferences),
        settings.letter,
        settings.assumed_load,
        settings.scheduler_name,
        {
            name: getattr(settings.ttl, name)
            for name in (field.name for field in fields(TimesToLive))
        },
    )
    entries = [Entry(now_s(), began)]

    def before(of: Any, method: str, made: Callable[..., Recorded]) -> None:
        inner = getattr(of, method)

        def tapped(*args: Any, **kwargs: Any) -> Any:
            entries.append(Entry(now_s(), made(*args, **kwargs)))
            return inner(*args, **kwargs)

        setattr(of, method, tapped)

    telemetry, images = controller.telemetry, controller.state.images
    before(controller.state, "apply", Changed)
    before(telemetry, "birth", Born)
    before(telemetry, "report", lambda node, stamp, reading, _=None: Reported(node, stamp, reading))
    before(telemetry, "rtts", Pinged)
    before(telemetry, "bandwidth", Tested)
    before(images, "observe", Pulled)
    before(images, "learn", Learnt)
    sink = controller.decisions._sink

    def decided(change: Any) -> None:
        if isinstance(change, DecisionRecord):
            entries.append(Entry(now_s(), Decided(change.uid, change.pod, change.node)))
        if sink is not None:
            sink(change)

    controller.decisions._sink = decided
    return entries
