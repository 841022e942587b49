"""Parses TOML; every error is one line."""

import re
import tomllib
from typing import Any

from leadline_controller.parsing.fields import FieldError

_MAX_ERROR_CHARS = 200  # the parser's message may quote the file
# More digits than int() accepts; Python's own message advises to change the interpreter.
_TOO_LONG = re.compile(r"[0-9][0-9_]{4299}")


def parse_toml(text: str) -> dict[str, Any]:
    """The tables in the text. Raises FieldError."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FieldError(str(error)[:_MAX_ERROR_CHARS]) from None
    except RecursionError:
        raise FieldError("nested too deep") from None
    except ValueError:
        found = _TOO_LONG.search(text)
        where = f" (at line {text.count(chr(10), 0, found.start()) + 1})" if found else ""
        raise FieldError(f"a number is too long{where}") from None
