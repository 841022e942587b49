"""What a comparison shows, in sentences: only differences whose intervals leave out 0 are told."""

from collections.abc import Iterator, Sequence

from leadline_controller.cli import human

from leadline_lab.replay.comparison import Comparison, Difference, Estimate, Finding
from leadline_lab.replay.measures import READY, SHARE, Measure
from leadline_lab.replay.outcomes import Outcome

_HEADLINES = ("ready_s", "user_rtt_ms")
_IN_WORST = "in the worst 5 % "
_BLOCKS = {
    "day": "Whole days are drawn again and again, so they say how certain a value is for days like "
    "these.",
    "hour": "There are too few days to draw days, so hours are drawn: the intervals say how "
    "certain a value is for these hours, and nothing about other days.",
    "five minutes": "The recording is short, so spans of five minutes are drawn, whose pods are "
    "not quite independent: the intervals are rather too narrow, and say nothing about other "
    "hours.",
}


def paragraphs(comparison: Comparison, strategy: str) -> Iterator[str]:
    """What is better, what is worse, and what is not certain under a strategy beside the base."""
    told: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    uncertain = []
    for found in comparison.findings:
        if found.strategy == strategy and found.mean_difference is not None:
            phrases = list(_phrases(found))
            for side, phrase in phrases:
                told[side].append(phrase)
            if not phrases:
                uncertain.append(_lower(found.measure.title))
    base = comparison.base
    headings = {True: f"Better than {base}", False: f"Worse than {base}", None: "Different"}
    yield from (f"{headings[side]}: {'; '.join(each)}." for side, each in told.items() if each)
    if uncertain:
        yield f"No difference is certain in {_listed(uncertain)}."


def _phrases(found: Finding) -> Iterator[tuple[bool | None, str]]:
    """Whether it is better, and what is said about it."""
    measure = found.measure
    by_side: dict[bool | None, list[str]] = {}
    for difference, where in ((found.mean_difference, ""), (found.worst_difference, _IN_WORST)):
        if difference is not None and difference.shown.is_certain:
            side = is_better(measure, difference)
            by_side.setdefault(side, []).append(f"{where}{change(measure, difference)}")
    for side, changes in by_side.items():
        starts = changes[0].removeprefix(_IN_WORST)
        where = _IN_WORST if starts != changes[0] else ""
        yield side, f"{where}{measure.words[0]} {', '.join([starts, *changes[1:]])}"


def is_better(measure: Measure, difference: Difference) -> bool | None:
    """None if nobody can say for another cluster."""
    if measure.lower_is_better is None:
        return None
    return (difference.absolute.value < 0) == measure.lower_is_better


def change(measure: Measure, difference: Difference) -> str:
    """The size of a difference with its interval and its direction: 12 % (8 to 16) sooner."""
    shown = difference.shown
    unit = "%" if difference.percent else "points" if measure.unit == SHARE else measure.unit
    times = 100 if measure.unit == SHARE and not difference.percent else 1
    if shown.value == 0 and shown.low in (0, None) and shown.high in (0, None):
        return "the same"
    less = shown.value < 0
    value, *ends = (
        None if x is None else (-x if less else x) * times
        for x in (shown.value, *((shown.high, shown.low) if less else (shown.low, shown.high)))
    )
    interval = "" if ends[0] is None else f" ({_short(ends[0])} to {_short(ends[1])})"
    amount = f"{_short(value)} {unit}".rstrip()
    return f"{amount}{interval} {measure.words[1 if less else 2]}"


def level(measure: Measure, estimate: Estimate | None) -> str:
    """A value with its interval, without its unit: 10.2 (7.7 to 12.9)."""
    if estimate is None:
        return human.UNKNOWN
    times = 100 if measure.unit == SHARE else 1
    text = human.number(estimate.value * times)
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} ({human.number(estimate.low * times)} to {human.number(estimate.high * times)})"


def unit(measure: Measure) -> str:
    """As it is written behind a title."""
    return "%" if measure.unit == SHARE else measure.unit


def _short(value: float | None) -> str:
    """No more digits than an interval is worth."""
    if value is not None and abs(value) >= 10:
        return f"{value:.0f}"
    return human.number(value, 2)


def _listed(items: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(items[:-1]), items[-1]]))


def _lower(title: str) -> str:
    return title if title.startswith("CPU") else title[0].lower() + title[1:]


def summary(comparison: Comparison) -> str:
    """The first thing to know: what users notice."""
    base, others = comparison.base, comparison.strategies[1:]
    if not others:
        return f"Only {base} was replayed, so nothing is compared."
    if not comparison.has_intervals:
        return (
            "The recording is too short to say how certain any value is: every difference may be "
            "chance."
        )
    return " ".join(_headline(comparison, key) for key in _HEADLINES if key in _known(comparison))


def _headline(comparison: Comparison, key: str) -> str:
    """A sentence about one measure under all strategies, the best one first."""
    found = [each for each in comparison.findings if each.measure.key == key]
    certain = [
        (each, each.mean_difference)
        for each in found
        if each.mean_difference is not None and each.mean_difference.shown.is_certain
    ]
    measure, base = found[0].measure, comparison.base
    if not certain:
        return f"{measure.title}: no strategy certainly differs from {base}."
    certain.sort(key=lambda each: each[1].absolute.value)
    told = [f"{change(measure, each)} under {of.strategy}" for of, each in certain]
    subject = f"{measure.words[0][0].upper()}{measure.words[0][1:]}"
    return f"{subject} {_listed(told)}, compared with {base}."


def _known(comparison: Comparison) -> set[str]:
    return {each.measure.key for each in comparison.findings if each.mean is not None}


def unknown(comparison: Comparison) -> Sequence[str]:
    """Titles of the measures of which nothing is known under any strategy."""
    known = _known(comparison)
    measures = dict.fromkeys(found.measure for found in comparison.findings)
    return [each.title for each in measures if each.key not in known]


def caveats(comparison: Comparison, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """What a reader must know to believe neither too much nor too little."""
    if comparison.has_intervals:
        yield f"Intervals hold the true value in about 95 of 100 cases. {_BLOCKS[comparison.block]}"
    differences = [
        each
        for found in comparison.findings
        for each in (found.mean_difference, found.worst_difference)
        if each is not None and each.absolute.low is not None
    ]
    if differences:
        yield (
            f"{len(differences)} differences are judged. Of those that are none in truth, about "
            "one in 20 looks certain by chance."
        )
    never = [
        f"{found.unknown} under {found.strategy}"
        for found in comparison.findings
        if found.measure is READY and found.unknown
    ]
    if never:
        yield (
            f"Some pods did not become ready within the recording, and their times are left out: "
            f"{_listed(never)}. A strategy that leaves many out looks better than it is."
        )
    if titles := unknown(comparison):
        yield f"Nothing is known of {_listed([_lower(title) for title in titles])}."
    for text in dict.fromkeys(text for outcome in outcomes for text in outcome.caveats):
        yield f"{text[:1].upper()}{text[1:].rstrip('.')}."
