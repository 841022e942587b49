"""No table of any command cuts a value: each command answers with long and hostile names, at four
widths of the terminal. The commands are those that there are, called as their help shows."""

import io
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from itertools import count, cycle
from pathlib import Path
from typing import Any

import click
import grpc
import pytest
import yaml
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.cli import output
from leadline_controller.cli.__main__ import leadline, run
from leadline_controller.cli.http_timing import Timing
from leadline_lab import lab as labs
from rich.cells import cell_len
from rich.console import Console

from tests.experiments import fakes
from tests.lab.replay.synthetic import Trait, outcome
from tests.support.examples import examples

REPOSITORY = Path(__file__).parents[3]
WIDTHS = (40, 60, 80, 120)
LONGEST_NAME = 253
# Else there would be nothing to print: no problem for `leadline status --quiet`, and no broker from
# which `leadline nodes --problems` knows of boards.
SET_SO: dict[str, object] = {"severity": "error", "answers": True}
LONGEST_NUMBER = 12  # of what nobody else chooses; the words beside it may be long


def hostile(number: int) -> str:
    """A name of 253 characters: with parts, without, wide ones, and with control characters."""
    parts = (
        f"node-{number}.rack.",
        "x",
        "\u6f22\u5b57",
        "a\x1b[31m\u202e\t",
        "e\u0301\u200d",
    )
    return (f"{number}" + parts[number % len(parts)] * LONGEST_NAME)[:LONGEST_NAME]


class Filler:
    """Makes answers of the controller in which all is set, each time to something else."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._flags = cycle((True, False))

    def fill(self, message: Any) -> Any:
        chosen = set[str]()
        for field in message.DESCRIPTOR.fields:
            alone = field.containing_oneof
            if alone is not None and len(alone.fields) > 1:
                if alone.name in chosen:
                    continue
                chosen.add(alone.name)
            self._set(message, field)
        return message

    def _set(self, message: Any, field: FieldDescriptor) -> None:
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            key, of = kind.fields_by_name["key"], kind.fields_by_name["value"]
            for _ in range(2):
                getattr(message, field.name)[self._scalar(key)] = self._scalar(of)
        elif field.is_repeated:
            many = getattr(message, field.name)
            for _ in range(2):
                if kind is None:
                    many.append(self._scalar(field))
                else:
                    self.fill(many.add())
        elif kind is not None:
            self.fill(getattr(message, field.name))
        else:
            set_so = SET_SO.get(field.name)
            setattr(message, field.name, self._scalar(field) if set_so is None else set_so)

    def _scalar(self, field: FieldDescriptor) -> Any:
        number = next(self._numbers)
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            return hostile(number)
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return next(self._flags)
        if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
            return 1000.25 + number * 7
        return number


class Answers(grpc.GenericRpcHandler):
    """Every method of every service answers, and fills all that it can."""

    def service(self, handler_call_details: Any) -> Any:
        _, service, method = handler_call_details.method.split("/")
        found = descriptor_pool.Default().FindServiceByName(service).FindMethodByName(method)

        def answered(_: bytes, __: Any) -> bytes:
            filled: Message = Filler().fill(_made(found.output_type))
            return filled.SerializeToString()

        return grpc.unary_unary_rpc_method_handler(answered)


def _made(kind: Descriptor) -> Message:
    return message_factory.GetMessageClass(kind)()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2), handlers=[Answers()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None)


class Recorded(output.Table):
    """A table that knows what it was made of, and keeps what it looked like at each width."""

    all: list["Recorded"]

    def __init__(
        self,
        columns: Sequence[str],
        rows: Iterable[Iterable[object]],
        numbers: Iterable[str],
        keys: int,
    ) -> None:
        cells = [[output.cell(value) for value in row] for row in rows]
        super().__init__(columns, cells, list(numbers), keys)
        headers = ["\n".join(map(output.clean, each.split("\n"))) for each in columns]
        self.cells = [headers, *([cell.plain for cell in row] for row in cells)]
        self.numbers = [at for at, each in enumerate(columns) if each in numbers]
        self.keys = keys
        self.widths = set[int]()

    def __rich_console__(self, console: Any, options: Any) -> Any:
        self.widths.add(options.max_width)
        if self not in Recorded.all:
            Recorded.all.append(self)
        yield from super().__rich_console__(console, options)


class Consoles:
    """A terminal of each width."""

    is_terminal = True

    def __init__(self) -> None:
        self.shown: dict[int, str] = {}

    def print(self, *renderables: Any, sep: str) -> None:
        for width in WIDTHS:
            self.shown[width] = rendered(width, *renderables, sep=sep)


def rendered(width: int, *renderables: Any, sep: str = "\n") -> str:
    on = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=True,
        color_system=None,
        markup=False,
        emoji=False,
        highlight=False,
    )
    on.print(*renderables, sep=sep)
    assert isinstance(on.file, io.StringIO)
    return on.file.getvalue()


def characters(texts: Iterable[str]) -> Counter[str]:
    return Counter("".join("".join(texts).split()))


def is_whole(table: Recorded, shown: str) -> bool:
    """Whether every character of every value is there: in each part of the table the keys, and in
    one of them everything else."""
    keys = characters(each for row in table.cells for each in row[: table.keys])
    others = characters(each for row in table.cells for each in row[table.keys :])
    parts = range(1, max(2, len(table.cells[0])))
    return any(
        characters([shown]) == others + Counter({key: n * times for key, n in keys.items()})
        for times in parts
    )


def broken_numbers(table: Recorded, shown: str) -> list[str]:
    words = Counter(shown.split())
    return [
        word
        for row in table.cells[1:]
        for at in table.numbers
        for word in row[at].split()
        if re.search(r"\d", word) and len(word) <= LONGEST_NUMBER and not words[word]
    ]


def listings(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that prints tables: `-o wide` is one of its formats."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from listings(command, (*path, name))
        for option in command.params:
            if option.name == "output" and "wide" in getattr(option.type, "choices", ()):
                yield (*path, name)


@cache
def example_of(path: tuple[str, ...]) -> list[str]:
    """What the help of a command shows to copy, without the command itself and its format."""
    command: click.Command = leadline
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    words = shlex.split((command.epilog or "").partition("Example: ")[2])
    assert tuple(words[: len(path) + 1]) == ("leadline", *path)
    return [each for each in words[1:] if each not in ("-o", "json", "wide", "yaml")]


def renamed(file: Path, folder: Path) -> Path:
    """A copy of a file, in which every name is long; a recording as it is."""
    if file.suffix == ".recording":
        return file
    document = yaml.safe_load(file.read_text("utf-8"))
    numbers, names = count(1), dict[str, str]()

    def visit(value: Any, change: Callable[[str], str]) -> Any:
        if isinstance(value, dict):
            for name in ("name", "a", "b", "client", "server"):
                if isinstance(value.get(name), str) and value[name] not in names:
                    # The parts of a Kubernetes name; nothing else can be in these files.
                    names[value[name]] = f"{'n' * 200}-{next(numbers)}"
            return {change(key): visit(each, change) for key, each in value.items()}
        if isinstance(value, list):
            return [visit(each, change) for each in value]
        return change(value) if isinstance(value, str) else value

    visit(document, str)
    copy = folder / file.name
    copy.write_text(yaml.safe_dump(visit(document, lambda text: names.get(text, text))), "utf-8")
    return copy


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """What commands know from elsewhere than the controller and files."""
    hosts = [
        {
            **{"host": hostile(at), "address": "10.77.0.101", "rate_mbps": 4.0, "delay_ms": 20.0},
            "processes": {hostile(at + 10): at % 2 == 0},
        }
        for at in range(1, 6)
    ]
    lab = {"hosts": hosts, "controller": f"unix:/{hostile(7)}"}
    monkeypatch.setattr(labs, "status", lambda _: lab)
    profile = import_module("leadline_controller.cli.commands.profile")
    monkeypatch.setattr(profile, "timed", lambda *_: Timing(1234.5678, 12.345, 1.5))
    command = import_module("leadline_experiments.command")
    monkeypatch.setattr(command, "EXPERIMENTS", {"netsched": fakes.__name__})
    monkeypatch.setattr(command, "_plot", lambda *_: None)
    simulation = import_module("leadline_lab.sounding.simulation")
    run = simulation.Sounding.run
    monkeypatch.setattr(
        simulation.Sounding, "run", lambda sounding, _, report: run(sounding, 0.5, report)
    )
    replayed = import_module("leadline_lab.replay.command")
    runs = [outcome(Trait(hostile(at)), pods=50) for at in range(2)]
    monkeypatch.setattr(replayed, "_outcomes", lambda *_: runs)


# What prints other tables than the example of the help.
MORE = (
    *(("nodes",), ("nodes", "--problems"), ("matrix", "n1"), ("matrix", "--worst", "20")),
    *(("matrix", "--all"), ("matrix", "--sort-by", "rtt")),
)


@pytest.mark.parametrize("form", ["table", pytest.param("wide", marks=pytest.mark.slow)])
@pytest.mark.parametrize("command", [*map(example_of, listings(leadline)), *MORE], ids=" ".join)
@pytest.mark.usefixtures("elsewhere")
def test_no_value_is_cut_at_any_width(
    command: Sequence[str],
    form: str,
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    consoles = Consoles()
    monkeypatch.setattr(output, "_console", lambda **_: consoles)
    monkeypatch.setattr(output, "Table", Recorded)
    monkeypatch.setattr(Recorded, "all", [], raising=False)
    monkeypatch.setenv("LEADLINE_ADDRESS", address)
    monkeypatch.chdir(tmp_path)
    words = [
        str(renamed(REPOSITORY / each, tmp_path))
        if (REPOSITORY / each).is_file()
        else each.replace("/etc/leadline", str(tmp_path))
        for each in command
    ]
    if command[:2] == ["recording", "list"]:
        shutil.copy(REPOSITORY / "docs/recordings/home.recording", tmp_path / "000001.recording")
        words += ["--folder", str(tmp_path)]
    code = run([*words, "-o", form])
    assert code in (0, 1), capsys.readouterr().err
    assert consoles.shown.keys() == set(WIDTHS), capsys.readouterr().err
    for width, shown in consoles.shown.items():
        assert max(map(cell_len, shown.splitlines())) <= width
    for table in Recorded.all:
        for width in table.widths & set(WIDTHS):
            alone = rendered(width, table)
            assert is_whole(table, alone), alone
            assert broken_numbers(table, alone) == [], alone


CELLS = (
    st.text(max_size=60) | st.integers().map(str) | st.sampled_from([hostile(x) for x in range(5)])
)
COLUMNS = 5


@examples(100)
@given(
    rows=st.lists(st.tuples(*[CELLS] * COLUMNS), max_size=3),
    numbers=st.sets(st.integers(0, COLUMNS - 1)),
    keys=st.integers(1, 3),
    width=st.integers(24, 130),
)
def test_no_table_cuts_a_value(
    rows: list[tuple[str, ...]], numbers: set[int], keys: int, width: int
) -> None:
    columns = [f"COLUMN\n{at}" for at in range(COLUMNS)]
    Recorded.all = []
    made = Recorded(columns, rows, [columns[at] for at in numbers], keys)
    shown = rendered(width, made)
    assert is_whole(made, shown)
    assert max(map(cell_len, shown.splitlines())) <= width


def test_what_does_not_fit_follows_below_and_begins_with_the_keys() -> None:
    columns = ("NODE", "CPU %", "ROUND TRIP ms", "BANDWIDTH Mbit/s", "WHY")
    row = ("kitchen", "12.5", "0.42 \u00b10.01", ">= 94.9", "its link is slow")
    assert rendered(80, output.table(columns, [row], numbers=columns[1:4])).splitlines() == [
        "NODE     CPU %  ROUND TRIP ms  BANDWIDTH Mbit/s  WHY             ",
        "kitchen   12.5     0.42 \u00b10.01           >= 94.9  its link is slow",
    ]
    narrow = rendered(40, output.table(columns, [row], numbers=columns[1:4]))
    assert [line.rstrip() for line in narrow.splitlines()] == [
        "NODE     CPU %  ROUND TRIP ms",
        "kitchen   12.5     0.42 \u00b10.01",
        "",
        "NODE     BANDWIDTH Mbit/s  WHY",
        "kitchen           >= 94.9  its link is",
        "                           slow",
    ]


def test_tables_are_laid_out_in_one_place_only() -> None:
    """Else the test above would not see them."""
    elsewhere = re.compile(r"rich\.(table|columns|panel|layout)|no_wrap|overflow=|\.truncate\(")
    folders = ("controller/leadline_controller/cli", "controller/experiments", "controller/lab")
    found = [
        str(file)
        for folder in folders
        for file in (REPOSITORY / folder).rglob("*.py")
        if file != Path(output.__file__) and elsewhere.search(file.read_text("utf-8"))
    ]
    assert found == []
