"""`leadline replay`: what other strategies would have done in recorded hours."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from leadline_controller.cli.errors import BadInput
from leadline_controller.cli.output import (
    Format,
    cell,
    check_writable,
    emit,
    output_options,
    progress,
    table,
    working,
)

if TYPE_CHECKING:
    from leadline_lab.replay.faithful import Fidelity
    from leadline_lab.replay.outcomes import Outcome
    from leadline_lab.replay.past import Past

_path = click.Path(path_type=Path, exists=True)
_DIFFERENCES = 20  # that are shown


@click.command(
    epilog="Example: leadline replay docs/recordings/home.recording --strategy dacs "
    "--strategy netsched --seeds 1 --html home.html"
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=_path)
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    metavar="NAME",
    help="A strategy to replay, or kube-scheduler; repeatable. By default the one that decided, "
    "and kube-scheduler.",
)
@click.option(
    "--option",
    "given",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set an option of the strategies that have it; repeatable.",
)
@click.option(
    "--seeds",
    default=3,
    show_default=True,
    type=click.IntRange(min=1, max=1000),
    help="Runs of each strategy, which break ties differently; the first as it was recorded.",
)
@click.option("--check", is_flag=True, help="Make the recorded decisions again, and compare.")
@click.option(
    "--plot", metavar="FOLDER", type=click.Path(path_type=Path), help="Write pictures there."
)
@click.option(
    "--html", metavar="FILE", type=click.Path(path_type=Path), help="Write a page with pictures."
)
@output_options("csv")
def replay(
    files: tuple[Path, ...],
    strategies: tuple[str, ...],
    given: tuple[str, ...],
    seeds: int,
    check: bool,
    plot: Path | None,
    html: Path | None,
    output: Format,
) -> None:
    """Run recorded hours again under other strategies, and compare what becomes of the pods.

    FILE is a recording, or a folder of its files; each is hours of its own.
    """
    from leadline_controller.framework.options import OptionError
    from leadline_controller.history.recording_files import RecordingError
    from leadline_controller.parsing.entry_points import PluginError

    from leadline_lab.replay import report
    from leadline_lab.replay.states import ReplayError

    try:
        with _quiet():
            if check:
                _check(files, output)
                return
            for option, folder in (("--plot", plot), ("--html", html and html.parent)):
                if folder is not None:
                    check_writable(option, folder)
            report.show(_outcomes(files, strategies, given, seeds), output, plot, html)
    except (OptionError, PluginError, RecordingError, ReplayError) as error:
        raise BadInput(str(error)) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Warn of no boards: what was wrong with them then nobody can mend now."""
    log = logging.getLogger("leadline_controller.telemetry")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _read(file: Path) -> "Past":
    from leadline_controller.history.recording_files import RecordingError, read_recording

    from leadline_lab.replay.past import Past
    from leadline_lab.replay.states import ReplayError

    try:
        return Past.of(read_recording(file))
    except (RecordingError, ReplayError) as error:
        message = str(error)
        raise BadInput(message if str(file) in message else f"{file}: {message}") from None
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}") from None


def _outcomes(
    files: Sequence[Path], strategies: Sequence[str], given: Sequence[str], seeds: int
) -> "list[Outcome]":
    from leadline_lab.replay.kube_scheduler import KubeScheduler
    from leadline_lab.replay.replaying import replay as run

    found: list[Outcome] = []
    for number, file in enumerate(files):
        with working(f"reading {file}"):
            past = _read(file)
        began = past.began
        names = list(dict.fromkeys(strategies or (began.strategy, KubeScheduler.name)))
        options = _options(given, names)
        # The one that decided has the options that it had, but for those that are given.
        recorded = _recorded(began.options)
        options[began.strategy] = {**recorded, **options.get(began.strategy, {})}
        with progress(f"replaying {file}") as report:
            for at, name in enumerate(names):
                for turn in range(seeds):
                    outcome = run(past, name, began.seed + turn, options.get(name, {}))
                    found.append(replace(outcome, window=f"{number + 1}-{file.name}"))
                    report((at * seeds + turn + 1) / (len(names) * seeds))
    return found


def _recorded(options: Mapping[str, str]) -> dict[str, object]:
    from leadline_controller.framework.options import value_of_text

    return {name: value_of_text(text) for name, text in options.items()}


def _options(given: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, object]]:
    """The options of each strategy. Raises OptionError."""
    from leadline_controller.framework.options import OptionError, values_of

    from leadline_lab.replay.states import strategy_named

    found: dict[str, dict[str, object]] = {}
    known = {name: values_of(strategy_named(name, {})) for name in names}
    for text in given:
        key, equals, value = text.partition("=")
        having = [name for name in names if key in known[name]]
        if not equals:
            raise OptionError(f"option {text!r}: expected KEY=VALUE")
        if not having:
            raise OptionError(f"option {key!r}: none of {', '.join(names)} has it")
        for name in having:
            found.setdefault(name, {})[key] = value
    return found


def _check(files: Sequence[Path], output: Format) -> None:
    """Print how many decisions come out again, and the others with why."""
    from leadline_lab.replay.faithful import faithful

    if output == "csv":
        raise BadInput("--check: prints no csv; choose table, json or yaml")
    found: dict[str, Fidelity] = {}
    for file in files:
        with working(f"making the decisions of {file} again"):
            found[str(file)] = faithful(_read(file).entries)

    def data() -> list[dict[str, Any]]:
        return [
            {
                "file": name,
                "decisions": each.decisions,
                "same": each.decisions - len(each.differences),
                "differences": [
                    {
                        name: getattr(d, name)
                        for name in ("pod", "at_s", "recorded", "replayed", "why")
                    }
                    for d in each.differences
                ],
            }
            for name, each in found.items()
        ]

    def tables(wide: bool) -> Any:
        for name, each in found.items():
            yield cell(
                f"{name}: {each.decisions - len(each.differences)} of {each.decisions} decisions "
                f"are the same ({each.share:.2%})"
            )
            shown = each.differences if wide else each.differences[:_DIFFERENCES]
            rows = [(d.pod, d.recorded or "none", d.replayed or "none", d.why) for d in shown]
            if rows:
                yield table(("POD", "RECORDED", "REPLAYED", "WHY"), rows)

    emit(output, data, tables)
