"""The order of names in answers and listings. Light to import, for the command line."""

import re


def in_order(name: str) -> list[tuple[str, int]]:
    """A sort key for names with numbers: n2 comes before n10."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"([^0-9]*)([0-9]*)", name)]
