"""Values as short texts for people; "-" is unknown. None is wider than a column of a table, however
large or small the value is."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime

UNKNOWN = "-"
_EIGHTHS = "▁▂▃▄▅▆▇█"
_PLAIN_EIGHTHS = "_.-=+*%#"
_LEVEL_SHARE = 0.02  # of the largest value; less than this looks level
_LEAST, _MOST = 1e-6, 1e9  # of numbers without an exponent


def age(seconds: float | None) -> str:
    """3s, 2m, 5h or 4d: the largest unit of which there are at least two."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    for unit, size_s in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size_s:
            return f"{number(seconds // size_s)}{unit}"
    return f"{max(0.0, seconds):.0f}s"


def moment(unix_s: float) -> str:
    """A time in the local time zone: 2026-03-01 14:05:09."""
    try:
        time = datetime.fromtimestamp(unix_s, UTC).astimezone()
    except (OverflowError, ValueError, OSError):  # beyond the calendar
        return UNKNOWN
    return time.strftime("%Y-%m-%d %H:%M:%S")


def number(value: float | None, digits: int = 3) -> str:
    """At least `digits` significant digits: 0.42, 12.5, 94.9, 941, 12345. An exponent only where no
    board has such values: 1e-40, 2.5e+300. NaN is unknown."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if value == 0:
        return "0"
    if not _LEAST <= abs(value) < _MOST:
        return f"{value:.{digits}g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def amount(value: float | None) -> str:
    """A number with an SI prefix: 999, 5k, 12.3k, 1.2M."""
    if value is not None and 1 <= value < 1000:
        return f"{value:.0f}"
    return _prefixed(value, 1000, ("k", "M", "G", "T"))


def size(value_bytes: float | None) -> str:
    """Bytes as Kubernetes writes memory: 512Mi, 3.7Gi."""
    return _prefixed(value_bytes, 1024, ("Ki", "Mi", "Gi", "Ti"))


def _prefixed(value: float | None, step: int, prefixes: Sequence[str]) -> str:
    """With the largest prefix that leaves at least 1."""
    if value is None:
        return UNKNOWN
    power = next((n for n in range(len(prefixes), 0, -1) if value >= step**n), 0)
    return f"{number(value / step**power)}{('', *prefixes)[power]}"


def cores(milli: int) -> str:
    """Thousandths of a core as cores: 500 is 0.5."""
    return f"{milli / 1000:g}"


def bar(percent: float | None) -> str:
    """One block character, as high as the percentage."""
    if percent is None or math.isnan(percent):
        return " "
    percent = min(100.0, max(0.0, percent))
    return _EIGHTHS[min(7, int(percent * 8 / 100))]


def chart(values: Sequence[float], *, plain: bool = False) -> str:
    """A character for each value, from the smallest one to the largest; a space for what is no
    finite number. plain: of ASCII only."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return " " * len(values)
    least, most = min(known), max(known)
    # Noise of a value that hardly changes must not fill the whole height.
    height = max(most - least, _LEVEL_SHARE * abs(most), 1e-9)
    signs = _PLAIN_EIGHTHS if plain else _EIGHTHS
    return "".join(
        signs[min(7, int((value - least) / height * 8))] if math.isfinite(value) else " "
        for value in values
    )
