"""JSON paths as kubectl's `-o jsonpath=` and `--sort-by` have them, without recursive descent:
https://kubernetes.io/docs/reference/kubectl/jsonpath/"""

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from leadline_controller.cli.output import clean

_STEP = re.compile(
    r"""
    \.? \[ \s* (?:
        (?P<all> \*) | (?P<quoted> '[^']*' | "[^"]*")
        | (?P<begin> -?[0-9]{0,9}) : (?P<end> -?[0-9]{0,9}) | (?P<at> -?[0-9]{1,9})
        | \?\( \s* @ (?P<left> [^\s=!<>()]+) \s*
          (?: (?P<how> == | != | <= | >= | < | >) \s*
              (?P<right> '[^']*' | "[^"]*" | [^\s()]+) \s* )? \)
    ) \s* \]
    | \. (?P<every> \*) | \.? (?P<name> (?: [^][.\\\s{}()*] | \\. )+)
    """,
    re.VERBOSE,
)
_BLOCK = re.compile(r"""\{((?:[^{}'"]|'[^']*'|"[^"]*")*)\}""")
_HOW: Mapping[str, Callable[[Any, Any], bool]] = {
    **{"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le},
    **{">": operator.gt, ">=": operator.ge},
}
Step = Callable[[Any], Sequence[Any]]


class PathError(ValueError):
    """A path or template that cannot be read; the message says what is expected."""


class Path:
    """A path to values in a document of dictionaries and lists, such as .nodes[*].name or
    metadata.name. Raises PathError."""

    def __init__(self, text: str) -> None:
        self._steps: list[Step] = []
        rest = text.strip().removeprefix("{").removesuffix("}").strip().removeprefix("$")
        at, rest = 0, rest.removeprefix("@").removesuffix(".")
        while at < len(rest):
            found = _STEP.match(rest, at)
            if found is None:
                expected = "expected a path such as .nodes[*].name"
                raise PathError(f"{text[:200]!r}: {expected}, cannot read {rest[at:][:40]!r}")
            self._steps.append(_step(found))
            at = found.end()

    def values(self, document: object) -> list[Any]:
        """What it leads to; nothing where a field is missing."""
        values: list[Any] = [document]
        for step in self._steps:
            values = [found for value in values for found in step(value)]
        return values


def _step(found: re.Match[str]) -> Step:
    if found["all"] or found["every"]:
        return _children
    if found["at"]:
        at = int(found["at"])
        return lambda value: value[at:][:1] if isinstance(value, list) else ()
    if found["begin"] is not None:
        begin, end = (int(found[each]) if found[each] else None for each in ("begin", "end"))
        return lambda value: value[begin:end] if isinstance(value, list) else ()
    if found["left"]:
        holds = _condition(Path(found["left"]), found["how"], found["right"])
        return lambda value: [each for each in _children(value) if holds(each)]
    name = found["quoted"][1:-1] if found["quoted"] else re.sub(r"\\(.)", r"\1", found["name"])
    return lambda value: (value[name],) if isinstance(value, dict) and name in value else ()


def _children(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else ()


def _condition(path: Path, how: str | None, right: str | None) -> Callable[[Any], bool]:
    """Whether the path leads to something that is known, or that compares so."""
    if how is None or right is None:
        return lambda each: any(value is not None for value in path.values(each))
    try:
        wanted = right[1:-1] if right[0] in "'\"" else json.loads(right)
    except ValueError:
        raise PathError(f"{right[:80]!r}: expected a number, true, false or a 'text'") from None

    def holds(each: Any) -> bool:
        try:
            return any(_HOW[how](value, wanted) for value in path.values(each))
        except TypeError:  # a text is neither more nor less than a number
            return False

    return holds


class Template:
    """Text with paths in braces: {.nodes[*].name}, and {range .nodes[*]}{.name}{"\\n"}{end}. Raises
    PathError."""

    def __init__(self, text: str) -> None:
        if "{" not in text:
            raise PathError(f"{text[:200]!r}: expected a template such as {{.nodes[*].name}}")
        # Text, a path, or what a range repeats.
        self._parts: list[Any] = []
        open_ranges: list[list[Any]] = [self._parts]
        at = 0
        for block in _BLOCK.finditer(text):
            open_ranges[-1].append(_plain(text[at : block.start()]))
            at, inside = block.end(), block[1].strip()
            if inside.startswith("range "):
                repeated: list[Any] = []
                open_ranges[-1].append((Path(inside.removeprefix("range ")), repeated))
                open_ranges.append(repeated)
            elif inside == "end" and len(open_ranges) > 1:
                open_ranges.pop()
            elif inside[:1] in ("'", '"'):
                text_of_it = inside[1:-1].replace(r"\n", "\n").replace(r"\t", "\t")
                open_ranges[-1].append(text_of_it)
            else:
                open_ranges[-1].append(Path(inside))
        open_ranges[-1].append(_plain(text[at:]))
        if len(open_ranges) > 1:
            raise PathError("a {range ...} has no {end}")

    def filled(self, document: object) -> str:
        """The text for this document: several values of a path with spaces between."""
        return "".join(_filled(self._parts, document))


def _plain(text: str) -> str:
    if "{" in text or "}" in text:
        raise PathError(f"{text[:80]!r}: a brace has no other one")
    return text


def _filled(parts: Sequence[Any], document: object) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, Path):
            yield " ".join(map(_shown, part.values(document)))
        else:
            path, repeated = part
            for value in path.values(document):
                yield from _filled(repeated, value)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return clean(value)
    return json.dumps(value, ensure_ascii=False)
