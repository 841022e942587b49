"""What all listings have in common, as kubectl's have it: which items, in which order, once or as
they change, and printed how. A command only says what there is."""

import functools
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from leadline_controller.cli.errors import BadInput
from leadline_controller.cli.jsonpath import Path, PathError
from leadline_controller.cli.output import FORMATS, Format, clean, emit, output_options
from leadline_controller.inspect.order import in_order

if TYPE_CHECKING:
    from rich.console import RenderableType

Item = TypeVar("Item")
Command = Callable[..., Any]
NAME = "name"
# What changes without news.
AGES = frozenset(("age_s", "confidence", "report_age_s", "first_age_s", "time"))
# What changes all the time: a listing that is watched shows states, `leadline watch` the values.
_VALUES = AGES | {"times", "metrics", "predicted_ms", "lost_messages"}
# Those of traffic.
_VALUES |= {"minute", "hour", "day", "requests_least_per_s", "requests_most_per_s"}
_VALUES |= {"rtt_ms", "best_rtt_ms", "link_share"}
_NUMBER = re.compile(r"[0-9.]+")
_POLL_S = 2.0
_TABLES = ("table", "wide")


@dataclass(frozen=True, slots=True)
class Listed(Generic[Item]):
    """What a listing answers. key: the name of an item, which no other one has; kind: what stands
    before it in `-o name`."""

    kind: str
    items: Sequence[Item]
    key: Callable[[Item], str]
    document: Callable[[Item], dict[str, Any]]
    # The whole document, of those of the items.
    whole: Callable[[list[dict[str, Any]]], Any]
    # Whether they are wide.
    tables: Callable[[Sequence[Item], bool], Iterable["RenderableType"]]


def listing(
    columns: Mapping[str, str], *, selects: bool = False, watches: bool = False
) -> Callable[[Command], Command]:
    """Make a command of a function that returns Listed. columns: those of the tables by which they
    can be sorted -> the path in the document of an item. selects: the function takes `selector`.
    watches: there is -w."""
    options: list[Callable[[Command], Command]] = [
        click.option(
            "--sort-by",
            metavar="COLUMN|PATH",
            help=f"Sort by {', '.join(columns)}, or by a JSON path in an item; with - in front the "
            "largest first. Unknown comes last.",
        ),
        click.option("--no-headers", is_flag=True, help="Tables without the columns' names."),
        output_options(NAME),
    ]
    if watches:
        watch = "Then show each item whose state changes, until Ctrl-C."
        options.insert(0, click.option("-w", "--watch", is_flag=True, help=watch))
    if selects:
        text = "Only what has such labels in Kubernetes: a=b,c in (d,e),!f."
        options.insert(0, click.option("-l", "--selector", default="", help=text))

    def decorated(command: Command) -> Command:
        @functools.wraps(command)
        def listed(
            *,
            sort_by: str | None,
            no_headers: bool,
            output: Format,
            watch: bool = False,
            **asked: Any,
        ) -> None:
            if sort_by is not None:
                _path(sort_by, columns)  # what cannot be read is not asked

            def show(found: Listed[Any], *, first: bool) -> None:
                items = _sorted(found, sort_by, columns, strict=first)
                headers = first and not no_headers
                _print(found, items, output, headers=headers, alone=watch)

            found = command(**asked)
            show(found, first=True)
            if watch:
                ask = functools.partial(command, **asked)
                _watch(found, ask, functools.partial(show, first=False), output)

        made: Command = listed
        for option in reversed(options):
            made = option(made)
        return made

    return decorated


def _watch(
    found: Listed[Any],
    ask: Callable[[], Listed[Any]],
    show: Callable[[Listed[Any]], None],
    output: Format,
) -> None:
    """Show the items whose state changes. Ctrl-C is the usual end."""
    before = _states(found)
    with suppress(KeyboardInterrupt):
        while True:
            time.sleep(_POLL_S)
            found = ask()
            now = _states(found)
            news = [
                item for item in found.items if before.get(found.key(item)) != now[found.key(item)]
            ]
            if news:
                show(replace(found, items=news))
            for name in before.keys() - now.keys():
                _print_gone(f"{found.kind}/{name}", output)
            before = now


def without(value: Any, names: frozenset[str]) -> Any:
    """A document without the fields of these names, wherever they are."""
    if isinstance(value, dict):
        return {key: without(each, names) for key, each in value.items() if key not in names}
    return [without(each, names) for each in value] if isinstance(value, list) else value


def _states(found: Listed[Any]) -> dict[str, str]:
    """Of each item, by its key, all that is news when it changes."""
    states = {}
    for item in found.items:
        state = without(found.document(item), _VALUES)
        # A note such as "bandwidth at least 61 Mbit/s" has a value, too.
        state["notes"] = [_NUMBER.sub("", note) for note in state.get("notes", ())]
        states[found.key(item)] = json.dumps(state)
    return states


def _path(sort_by: str, columns: Mapping[str, str]) -> Path:
    name = sort_by.removeprefix("-")
    try:
        return Path(columns.get(name.lower(), name))
    except PathError as error:
        raise BadInput(f"--sort-by {error}, or one of {', '.join(columns)}") from None


def _sorted(
    found: Listed[Item], sort_by: str | None, columns: Mapping[str, str], *, strict: bool
) -> list[Item]:
    """The items, those without a value last. strict: raises BadInput where no item has such a
    field."""
    if sort_by is None:
        return list(found.items)
    path = _path(sort_by, columns)
    values = [
        [value for value in path.values(found.document(item)) if not isinstance(value, dict | list)]
        for item in found.items
    ]
    if strict and values and not any(values) and sort_by.removeprefix("-").lower() not in columns:
        expected = f"expected {', '.join(columns)}, or a path to a field that -o json shows"
        raise BadInput(f"--sort-by {sort_by[:200]!r}: {expected}")
    known, unknown = list[tuple[Any, Item]](), list[Item]()
    for value, item in zip(values, found.items, strict=True):
        if value and value[0] is not None:
            known.append((_rank(value[0]), item))
        else:
            unknown.append(item)
    known.sort(key=lambda each: each[0], reverse=sort_by.startswith("-"))
    return [*(item for _, item in known), *unknown]


def _rank(value: Any) -> tuple[bool, float, list[tuple[str, int]]]:
    """Numbers come before texts, and n2 before n10."""
    if isinstance(value, int | float):
        return False, value, []
    return True, 0.0, in_order(str(value))


def _print(
    found: Listed[Item], items: Sequence[Item], output: Format, *, headers: bool, alone: bool
) -> None:
    """alone: each item as a document of its own, as more may follow."""
    if output == NAME:
        for item in items:
            # As kubectl, which leaves the namespace out.
            click.echo(f"{found.kind}/{clean(found.key(item).rpartition('/')[2])}")
    elif output in _TABLES:
        emit(output, dict, lambda wide: found.tables(items, wide), headers=headers)
    elif alone:
        for item in items:
            if output == "yaml":
                click.echo("---")
            emit(output, functools.partial(found.document, item), lambda _: ())
    else:
        documents = [found.document(item) for item in items]
        whole = found.whole(documents)
        if output not in FORMATS:  # `items` is kubectl's word for what is listed
            whole = {"items": documents} | (whole if isinstance(whole, dict) else {})
        emit(output, lambda: whole, lambda _: ())


def _print_gone(name: str, output: Format) -> None:
    if output in _TABLES:
        click.echo(f"{clean(name)} is not listed any more")
    elif output in FORMATS:
        emit(output, lambda: {"gone": name}, lambda _: ())
