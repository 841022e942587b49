"""Values as short texts for people; "-" is unknown."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime

UNKNOWN = "-"
_EIGHTHS = "▁▂▃▄▅▆▇█"
_PLAIN_EIGHTHS = "_.-=+*%#"
_LEVEL_SHARE = 0.02  # of the largest value; less than this looks level


def age(seconds: float | None) -> str:
    """3s, 2m, 5h or 4d: the largest unit of which there are at least two."""
    if seconds is None:
        return UNKNOWN
    for unit, size_s in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size_s:
            return f"{seconds // size_s:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"


def moment(unix_s: float) -> str:
    """A time in the local time zone: 2026-03-01 14:05:09."""
    return datetime.fromtimestamp(unix_s, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def number(value: float | None, digits: int = 3) -> str:
    """At least `digits` significant digits, never an exponent: 0.42, 12.5, 94.9, 941, 12345."""
    if value is None:
        return UNKNOWN
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def amount(value: float | None) -> str:
    """A number with an SI prefix: 999, 5k, 12.3k, 1.2M."""
    if value is None:
        return UNKNOWN
    for prefix, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{number(value / size)}{prefix}"
    return number(value) if value < 1 else f"{value:.0f}"


def size(value_bytes: float | None) -> str:
    """Bytes as Kubernetes writes memory: 512Mi, 3.7Gi."""
    if value_bytes is None:
        return UNKNOWN
    for prefix, unit in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if value_bytes >= unit:
            return f"{number(value_bytes / unit)}{prefix}"
    return f"{value_bytes:.0f}"


def cores(milli: int) -> str:
    """Thousandths of a core as cores: 500 is 0.5."""
    return f"{milli / 1000:g}"


def bar(percent: float | None) -> str:
    """One block character, as high as the percentage."""
    if percent is None:
        return " "
    return _EIGHTHS[min(7, max(0, int(percent * 8 / 100)))]


def chart(values: Sequence[float], *, plain: bool = False) -> str:
    """A character for each value, from the smallest one to the largest; a space for NaN. plain: of
    ASCII only."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return " " * len(values)
    least, most = min(known), max(known)
    # Noise of a value that hardly changes must not fill the whole height.
    height = max(most - least, _LEVEL_SHARE * abs(most), 1e-9)
    signs = _PLAIN_EIGHTHS if plain else _EIGHTHS
    return "".join(
        " " if math.isnan(value) else signs[min(7, int((value - least) / height * 8))]
        for value in values
    )
