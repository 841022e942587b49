"""What an earlier release says still means the same: fields, values and methods are only added; the
number of a field that goes is reserved."""

from pathlib import Path

import pytest

from tests.proto.described import described, today
from tests.proto.other_wires import first_schema

RELEASED = sorted(Path(__file__).with_name("released").glob("*.txt"))


@pytest.mark.parametrize("file", RELEASED, ids=lambda file: file.stem)
def test_nothing_that_was_released_has_changed(file: Path) -> None:
    now, released = set(today()), set(file.read_text().splitlines())
    messages = {line.split()[0] for line in now}
    # A message may go with the last field of its type.
    fields = {line for line in released if line.split()[0] in messages or "/" in line}
    gone = {line for line in fields - now if f"{line.partition(':')[0]}: reserved" not in now}
    assert not gone, "a new field or method needs a new number or name, and old ones stay"


def test_nothing_of_the_first_wire_has_changed() -> None:
    assert set(described(first_schema())) <= set(today())
