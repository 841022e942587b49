"""Recorded hours, again under each of several strategies."""

from collections.abc import Iterable, Mapping

from leadline_controller.framework.options import value_text, values_of
from leadline_controller.history.recorded import Entry

from leadline_lab.replay.outcomes import Outcome
from leadline_lab.replay.past import Past
from leadline_lab.replay.run import Run
from leadline_lab.replay.states import rule_of, strategy_named


def replay(
    recorded: Iterable[Entry] | Past,
    strategy: str,
    seed: int,
    options: Mapping[str, object] | None = None,
) -> Outcome:
    """What would have become of the recorded pods under this strategy. The recording is read once
    if it is given as a Past. Raises ReplayError, OptionError and PluginError."""
    past = recorded if isinstance(recorded, Past) else Past.of(recorded)
    made = strategy_named(strategy, options or {})
    usual = values_of(strategy_named(strategy, {}))
    shown = {
        name: value_text(value) for name, value in values_of(made).items() if value != usual[name]
    }
    return Run(past, rule_of(made, past.began), seed, strategy, shown).run()
