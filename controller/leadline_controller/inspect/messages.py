"""Messages of records: what a field and an attribute are both called needs no line."""

from typing import Any, TypeVar

from google.protobuf.message import Message

Made = TypeVar("Made", bound=Message)


def message(kind: type[Made], record: object, **others: Any) -> Made:
    """A message with the attributes of the record that its fields are named after, and `others` in
    place of some. None leaves a field out. Raises AttributeError for a field that neither has."""
    names = (field.name for field in kind.DESCRIPTOR.fields)
    return kind(**{name: getattr(record, name) for name in names if name not in others}, **others)
