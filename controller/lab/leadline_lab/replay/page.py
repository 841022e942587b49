"""A comparison as one page of HTML that needs nothing else: no network, no script."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from leadline_lab.replay import pictures, verdict
from leadline_lab.replay.comparison import Comparison, Difference, Finding, label
from leadline_lab.replay.measures import Measure, nodes
from leadline_lab.replay.outcomes import Outcome
from leadline_lab.replay.pictures import Picture, colour, text

_NUMBER = re.compile(r"(\d) (?=(?:%|s|ms|points)(?![a-z]))")
_STYLE = """
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 16px/1.5 system-ui, sans-serif;
  overflow-wrap: anywhere; }
main { max-width: 72rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0; }
h2 { font-size: 1.25rem; margin: 2rem 0 .5rem; } h3 { font-size: 1rem; margin: 0; }
p { margin: .4rem 0; max-width: 46rem; } li { max-width: 46rem; margin: .3rem 0; }
.quiet, figcaption, caption { color: var(--quiet); font-size: .875rem; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: .8rem 1rem; margin: .8rem 0; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: .6rem 1.2rem;
  margin: .8rem 0; }
dt { color: var(--quiet); font-size: .875rem; } dd { margin: 0; }
.lead { font-size: 1.15rem; }
.key { display: inline-block; width: .8rem; height: .8rem; border-radius: 50%; margin-right: .4rem;
  background: var(--hue); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; padding: 0;
  margin: 0 0 .5rem; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 18rem), 1fr));
  gap: .5rem 2rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 18rem), 1fr));
  gap: 1rem; }
figure { margin: 0; } svg { display: block; width: 100%; height: auto; max-width: 25rem; }
.wide svg { max-width: 36rem; min-width: 22rem; }
.scroll { overflow-x: auto; } .scroll:focus-visible { outline: 3px solid var(--s1); }
table { border-spacing: 0; font-size: .875rem; font-variant-numeric: tabular-nums; width: 100%; }
caption { text-align: left; } th, td { text-align: left; padding: .3rem .8rem .3rem 0;
  border-bottom: 1px solid var(--line); vertical-align: top; overflow-wrap: normal; }
thead th { color: var(--quiet); font-weight: 600; } tbody th { font-weight: 500; }
td { min-width: 6.5rem; } td small { display: block; color: var(--quiet); white-space: nowrap; }
.better, .worse, .different { font-weight: 600; } .better { color: var(--good); }
.worse { color: var(--bad); } .pair ul { margin: 0; padding-left: 1.2rem; }
summary { cursor: pointer; }
@media print { .card { break-inside: avoid; } }
"""


def page(comparison: Comparison, outcomes: Sequence[Outcome]) -> str:
    """The whole file. The same input gives the same text."""
    return "\n".join(_page(comparison, outcomes)) + "\n"


def _page(comparison: Comparison, outcomes: Sequence[Outcome]) -> Iterator[str]:
    others = comparison.strategies[1:]
    title = f"{' and '.join(others)} beside {comparison.base}" if others else comparison.base
    if len(others) > 2:
        title = f"{len(others)} strategies beside {comparison.base}"
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{text(title)}: which strategy places pods better?</title>"
    yield f"<style>{pictures.COLOURS}{_STYLE}</style>\n</head>\n<body>\n<main>"
    yield f"<h1>{text(title)}</h1>"
    yield (
        "<p>A strategy decides on which board each pod of a cluster runs. Here hours that were "
        "recorded on a cluster are run again, with the same pods, at the same times, on the same "
        "network, once under each strategy. What follows is what would have come of the pods.</p>"
    )
    yield from _facts(comparison, outcomes)
    yield '<section id="verdict">\n<h2>Verdict</h2>'
    yield f'<p class="lead">{_prose(verdict.summary(comparison))}</p>'
    if others:
        yield from _glance(comparison)
        yield from _verdicts(comparison, outcomes)
    yield "</section>"
    yield from _measures(comparison)
    yield from _distribution(comparison, outcomes)
    yield from _boards(comparison, outcomes)
    yield "<h2>Before you rely on it</h2>\n<ul>"
    for each in verdict.caveats(comparison, outcomes):
        yield f"<li>{text(each)}</li>"
    yield "</ul>"
    yield from _numbers(comparison)
    yield "</main>\n</body>\n</html>"


def _facts(comparison: Comparison, outcomes: Sequence[Outcome]) -> Iterator[str]:
    runs = {each.window: each for each in outcomes}
    pods = sum(len(each.pods) for each in runs.values())
    zones = sorted({zone for each in runs.values() for zone in each.zones.values() if zone})
    names = f" ({', '.join(zones)})" if 0 < len(zones) <= 6 else ""
    seeds = ", ".join(map(str, comparison.seeds))
    recorded = "decided when it was recorded" if any(x.is_recorded for x in outcomes) else "first"
    yield '<dl class="card">'
    for name, value in (
        ("Compared", ", ".join(comparison.strategies)),
        ("Compared with", f"{comparison.base}, which {recorded}"),
        ("Recorded hours", "; ".join(_hours(each) for each in runs.values())),
        ("Cluster", "; ".join(dict.fromkeys(map(_cluster, runs.values())))),
        ("Zones", f"{len(zones)}{names}" if zones else "none"),
        ("Pods", f"{pods} for each strategy and seed"),
        ("Seeds", f"{seeds} (chance decides between equal boards)"),
    ):
        yield f"<div><dt>{name}</dt><dd>{text(value)}</dd></div>"
    yield "</dl>"


def _cluster(outcome: Outcome) -> str:
    tiers = Counter(outcome.tiers.values())
    of_tiers = "".join(f", {tiers[tier]} {tier}" for tier in ("edge", "cloud") if tiers[tier])
    name = f"{outcome.cluster}: " if outcome.cluster else ""
    return f"{name}{len(nodes(outcome))} boards{of_tiers}"


def _hours(outcome: Outcome) -> str:
    length = f"{outcome.length_s / 3600:.3g} h"
    window = f"{outcome.window}, " if outcome.window else ""
    if outcome.began_unix_s is None:
        return f"{window}{length}"
    try:
        began = datetime.fromtimestamp(outcome.began_unix_s, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{window}{length}"
    return f"{window}{length} from {began:%Y-%m-%d %H:%M} UTC"


def _prose(sentences: str) -> str:
    """No line ends between a number and its unit."""
    return _NUMBER.sub("\\1\u00a0", text(sentences))


def _verdicts(comparison: Comparison, outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield "<h2>In words, with the worst 5 %</h2>"
    for number, strategy in enumerate(comparison.strategies[1:], start=1):
        yield f'<div class="card"><h3>{_key(number)}{text(strategy)}</h3>'
        for says in verdict.paragraphs(comparison, strategy):
            yield f"<p>{_prose(says)}</p>"
        given = next(each.options for each in outcomes if label(each, outcomes) == strategy)
        if given:
            options = ", ".join(f"{name}={value}" for name, value in given.items())
            yield f'<p class="quiet">Options: {text(options)}</p>'
        yield "</div>"


def _key(number: int) -> str:
    return f'<span class="key" style="--hue:{colour(number)}"></span>'


def _glance(comparison: Comparison) -> Iterator[str]:
    yield '<div class="card scroll" tabindex="0" role="region" aria-label="Differences"><table>'
    yield (
        f"<caption>Difference of the means to {text(comparison.base)}, with 95 % intervals. "
        "Bold is certain: the interval leaves out 0.</caption>"
    )
    heads = "".join(f'<th scope="col">{text(each)}</th>' for each in comparison.strategies[1:])
    yield f'<thead><tr><th scope="col">Measure</th>{heads}</tr></thead><tbody>'
    for measure, found in _by_measure(comparison):
        if any(each.mean for each in found):
            cells = "".join(_cell(measure, each.mean_difference) for each in found[1:])
            yield f'<tr><th scope="row">{text(measure.title)}</th>{cells}</tr>'
    yield "</tbody></table></div>"


def _cell(measure: Measure, difference: Difference | None) -> str:
    if difference is None:
        return "<td>-</td>"
    shown, _, interval = verdict.change(measure, difference).partition(" (")
    interval, _, direction = interval.partition(") ")
    is_better = verdict.is_better(measure, difference)
    kind = note = ""
    if difference.shown.is_certain:
        kind = {True: "better", False: "worse", None: "different"}[is_better]
        note = "" if is_better is None else f", {kind}"
    small = f"<small>{text(interval)}</small>" if interval else ""
    return f'<td><span class="{kind}">{text(f"{shown} {direction}")}{note}</span>{small}</td>'


def _by_measure(comparison: Comparison) -> Iterator[tuple[Measure, Sequence[Finding]]]:
    """Measures in order, each with its findings in the order of the strategies."""
    by_key: dict[str, list[Finding]] = {}
    for found in comparison.findings:
        by_key.setdefault(found.measure.key, []).append(found)
    for of_measure in by_key.values():
        yield of_measure[0].measure, of_measure


def _measures(comparison: Comparison) -> Iterator[str]:
    yield "<h2>Measure by measure</h2>"
    yield (
        "<p>A dot is the mean over all pods, a ring below it the mean of the worst 5 % of them. "
        "The line through it is its 95 % interval. The left pictures show the values. Their "
        "intervals are wide where hours or days differ, for all strategies alike, so the right "
        "ones compare the same hours: a line that does not cross the 0 is a certain difference."
        "</p>"
    )
    captions = ("Values", f"Differences to {comparison.base}")
    for measure, found in _by_measure(comparison):
        if all(each.mean is not None and each.mean.value == 0 for each in found):
            yield f'<p class="quiet">{text(measure.title)}: 0 under every strategy.</p>'
            continue
        drawn = [pictures.levels(comparison, measure), pictures.differences(comparison, measure)]
        if drawn[0] is None:
            continue
        yield f'<section class="card"><h3>{text(measure.title)}</h3>'
        yield f'<p class="quiet">{text(measure.meaning)}</p><div class="pair">'
        for each, caption in zip(drawn, captions, strict=True):
            if each is not None:
                yield _figure(each, caption)
        yield "</div></section>"


def _figure(picture: Picture, caption: str) -> str:
    return f"<figure><figcaption>{text(caption)}</figcaption>{picture.svg}</figure>"


def _distribution(comparison: Comparison, outcomes: Sequence[Outcome]) -> Iterator[str]:
    curves = pictures.ready_curves(comparison, outcomes)
    if curves is None:
        return
    yield "<h2>How soon pods are ready</h2>"
    yield (
        "<p>For each time since a pod's creation, the share of all pods that were ready by then: "
        "a curve further left and higher is better. The slowest 2 % are beyond the right edge.</p>"
    )
    yield '<div class="card">'
    yield from _legend(comparison)
    yield '<div class="scroll wide" tabindex="0" role="region" aria-label="Time to ready">'
    yield f"{curves.svg}</div></div>"


def _legend(comparison: Comparison) -> Iterator[str]:
    items = (f"<li>{_key(at)}{text(each)}</li>" for at, each in enumerate(comparison.strategies))
    yield f'<ul class="legend">{"".join(items)}</ul>'


def _boards(comparison: Comparison, outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield "<h2>Pods on the boards over time</h2>"
    yield (
        "<p>The line is the mean of the pods per board; the light band reaches from the emptiest "
        "board to the fullest one, the dark one holds the middle half of the boards. A narrow "
        "band is an even spread. Shown is the first run of each strategy.</p>"
    )
    yield '<div class="card charts">'
    for strategy, picture in pictures.boards(comparison, outcomes):
        yield _figure(picture, strategy)
    yield "</div>"


def _numbers(comparison: Comparison) -> Iterator[str]:
    columns = ("Measure", "Strategy", "Mean", "Worst 5 %", "Pods known", "Pods not known")
    yield '<details class="card"><summary>All values as a table</summary>'
    yield '<div class="scroll" tabindex="0" role="region" aria-label="All values"><table>'
    yield "<caption>With 95 % intervals. - means that nothing is known.</caption>"
    heads = "".join(f'<th scope="col">{each}</th>' for each in columns)
    yield f"<thead><tr>{heads}</tr></thead><tbody>"
    for found in comparison.findings:
        measure = found.measure
        unit = verdict.unit(measure)
        title = f"{measure.title}, {unit}" if unit else measure.title
        cells = (
            *(
                found.strategy,
                verdict.level(measure, found.mean),
                verdict.level(measure, found.worst),
            ),
            *(found.known, found.unknown),
        )
        row = "".join(f"<td>{text(each)}</td>" for each in cells)
        yield f'<tr><th scope="row">{text(title)}</th>{row}</tr>'
    yield "</tbody></table></div></details>"
