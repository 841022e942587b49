"""Reads a YAML or JSON file that nobody vouches for into plain data.

YAML is bent into JSON's shape before anything is built: aliases (a few lines of them make
gigabytes), tags, deep nesting (the C loader crashes on it) and duplicate names are refused.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from leadline_controller.core.fields import FieldError

MAX_BYTES = 16 * 1024 * 1024
_MAX_DEPTH = 64

try:
    from yaml import CSafeLoader as _SafeLoader
except ImportError:  # PyYAML built without libyaml
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]  # the same interface


class _Loader(_SafeLoader):
    """The safe loader, with duplicate names refused where it would keep the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise FieldError(f"line {key.start_mark.line + 1}: {key.value[:60]!r} comes twice")
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def read_document(path: Path) -> object:
    """The data in the file. Raises FieldError when it is unreadable, over MAX_BYTES, or
    neither YAML nor JSON."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise FieldError(error.strerror or "cannot be read") from None
    if len(content) > MAX_BYTES:
        raise FieldError(f"expected at most {MAX_BYTES} bytes")
    try:
        return parse_document(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise FieldError(f"expected UTF-8 text, byte {error.start} is none") from None


def parse_document(text: str) -> object:
    """The data in the text, JSON if it reads as JSON, else YAML. Raises FieldError."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
        except json.JSONDecodeError:
            pass  # YAML has braces too
        except RecursionError:
            raise FieldError("nested too deep") from None
        except FieldError:
            raise
        except ValueError:
            raise FieldError("a number in this file is too long") from None
    try:
        _check_shape(text)
        return yaml.load(text, Loader=_Loader)  # noqa: S506  # a subclass of the safe loader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise FieldError(f"{where}{error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise FieldError(f"expected YAML or JSON: {' '.join(str(error).split())}") from None
    except FieldError:
        raise
    except (ValueError, ArithmeticError) as error:  # dates and numbers that only look like some
        raise FieldError(f"a value that can't be read: {str(error)[:80]}") from None


def _check_shape(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.AliasEvent):
            raise FieldError(f"line {line}: aliases (*) are not supported")
        if isinstance(event, yaml.NodeEvent) and getattr(event, "tag", None) is not None:
            raise FieldError(f"line {line}: tags (!) are not supported")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                raise FieldError(f"line {line}: nested too deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise FieldError(f"{twice[:60]!r} comes twice in one object")
    return found


def _refuse_constant(name: str) -> None:
    raise FieldError(f"{name} is no number; leave out what is unknown")
