"""Messages are made of records by their names."""

from typing import NamedTuple

import pytest
from leadline_controller.inspect.messages import message
from leadline_wire.v1 import control_pb2 as pb


class Record(NamedTuple):
    client: str
    uplinks: tuple[str, ...]
    beside: object = None


def test_fields_are_attributes_and_others_come_first() -> None:
    record = Record("n1", ("hall", "yard"))
    made = message(pb.RunningTest, record, server="n2", max_bytes=None, client="n3")
    assert made == pb.RunningTest(client="n3", server="n2", uplinks=("hall", "yard"))


def test_a_field_that_nobody_has_is_an_error() -> None:
    with pytest.raises(AttributeError, match="max_bytes"):
        message(pb.RunningTest, Record("n1", ()), server="n2")
