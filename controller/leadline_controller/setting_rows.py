"""How the settings that a dataclass declares are read of a table of the file."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from leadline_controller.map.settings import WebTls
from leadline_controller.parsing.fields import FieldError, Fields
from leadline_controller.parsing.settings import LARGEST, Setting
from leadline_controller.serve.settings import ServeError, TlsFiles
from leadline_controller.telemetry.session import BrokerTls

_PEM = "PEM files and a key without a passphrase that belongs to the certificate"


@dataclass(frozen=True, slots=True)
class Row:
    """A setting as the file has it."""

    path: str
    type: Any  # of the field, without None
    default: Any  # MISSING if it must be there
    declared: Setting

    @property
    def is_section(self) -> bool:
        """Whether it is not one setting but those of a dataclass."""
        return is_dataclass(self.type) and self.declared.read is None

    @property
    def is_table(self) -> bool:
        """Whether it is a table or a list of tables, for which there is no variable."""
        return self.type == Mapping[str, object] or self.fields_of_entries is not None

    @property
    def fields_of_entries(self) -> Any:
        """The dataclass of each table in a list of tables; None for all else."""
        return next((each for each in get_args(self.type) if is_dataclass(each)), None)

    @property
    def variable(self) -> str:
        """The variable of the setting."""
        return "LEADLINE_" + self.path.replace(".", "_").upper()

    @property
    def words(self) -> Mapping[str, object]:
        """What each word in the file means, where only these are allowed."""
        if get_origin(self.type) is Literal:
            return {word: word for word in get_args(self.type)}
        return self.declared.words

    @property
    def range(self) -> str:
        """What a number may be."""
        least, most = self.declared.least, self.declared.most
        return f"{least:.16g} or more" if most == LARGEST else f"{least:.16g} to {most:.16g}"

    def of_text(self, text: str) -> object:
        """What a variable's text is in the file. The check refuses what is wrong."""
        if self.type is bool and not self.words:
            return {"true": True, "false": False}.get(text, text)
        if get_origin(self.type) is tuple:
            return [name.strip() for name in text.split(",") if name.strip()]
        if self.type in (int, float, str | float):
            for convert in (int, float):
                with suppress(ValueError):
                    return convert(text)
        return text

    def value(self, table: Fields, name: str) -> Any:
        """The field's value, of the file's table and the name in it. Raises FieldError."""
        if not table.has(name):
            raise table.error(name, self.declared.help)
        if self.words and self.declared.read is None:
            return self.words[table.choice(name, *self.words)]
        if self.type is bool:
            return table.flag(name, default=False)
        if self.type is int:
            return table.integer(name, int(self.declared.least), int(self.declared.most))
        if self.type is float:
            return self._number(table, name)
        if self.type == Mapping[str, object]:
            return dict(table.object(name).data)
        if entries := self.fields_of_entries:
            return tuple(_entry(entries, each) for each in table.objects(name))
        if (kind := get_origin(self.type)) in (tuple, frozenset):
            texts = enumerate(table.texts(name))
            return kind(self._read(text, f"{table.at(name)}[{i}]") for i, text in texts)
        given = table.raw(name) if self.type == str | float else table.text(name)
        return self._read(given, table.at(name))

    def _number(self, table: Fields, name: str) -> float:
        value = table.raw(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise table.error(name, "a number")
        if not self.declared.least <= value <= self.declared.most:
            raise table.error(name, f"a finite number of {self.range}")
        return float(value)

    def _read(self, given: object, path: str) -> object:
        with named(path, ValueError, ServeError):
            return given if self.declared.read is None else self.declared.read(given)


@cache
def rows(kind: Any, section: str = "") -> tuple[Row, ...]:
    """Every setting of a dataclass and of its sections, in the order of the fields."""
    found: list[Row] = []
    for _, row in _rows_of(kind):
        path = f"{section}.{row.path}".strip(".")
        found += rows(row.type, path) if row.is_section else [replace(row, path=path)]
    return tuple(found)


# To read a class' types takes longer than all else in reading a file, and they stay the same.
@cache
def _rows_of(kind: Any) -> tuple[tuple[str, Row], ...]:
    """The dataclass' fields and their settings or sections, by their paths within it."""
    types, found = get_type_hints(kind), []
    for each in fields(kind):
        if (declared := each.metadata.get("setting")) is not None:
            made = each.default_factory
            default = each.default if made is MISSING else made()
            path = each.name if declared.name is None else declared.name
            without_none = [of for of in get_args(types[each.name]) if of is not NoneType]
            optional = NoneType in get_args(types[each.name])
            type_ = without_none[0] if optional else types[each.name]
            found.append((each.name, Row(path, type_, default, declared)))
    return tuple(found)


def made(kind: Any, table: Fields) -> Any:
    """The dataclass, of the settings in its table. Raises FieldError."""
    given = {}
    for field, row in _rows_of(kind):
        inside, (*sections, name) = table, row.path.split(".")
        for each in sections:
            inside = inside.object(each)
        if not row.is_section:
            # What is not in the file, the class makes anew.
            if row.default is MISSING or inside.has(name):
                given[field] = row.value(inside, name)
        elif row.default is not None or inside.has(name):
            given[field] = made(row.type, inside.object(name) if name else inside)
    with named(table.at("address"), ServeError):
        found = kind(**given)
    with named(f"{table.path}: expected {_PEM}", ServeError, OSError, ValueError):
        match found:
            case WebTls():
                found.server_context(login=False)
            case BrokerTls() | TlsFiles():
                BrokerTls(found.ca_file, found.cert_file, found.key_file).context()
    return found


def _entry(kind: Any, table: Fields) -> Any:
    table.only(*(row.path for _, row in _rows_of(kind)))
    return made(kind, table)


@contextmanager
def named(where: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turns these errors into a FieldError of the field `where`."""
    try:
        yield
    except FieldError:
        raise
    except kinds as error:
        raise FieldError(f"{where}: {error}") from None
