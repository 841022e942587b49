"""How often services are requested, from counters in Prometheus' text format.

The endpoints are settings of this controller, not of a ScaledObject: otherwise everybody who may
write one could have the controller send requests to any address that it reaches. A ScaledObject
only names a counter and its labels.
"""

import asyncio
import logging
import math
import re
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from leadline_controller.framework.ports import Clock
from leadline_controller.logs import ErrorLog
from leadline_controller.serve.turns import of_the_fullest

log = logging.getLogger(__name__)

# Traefik has some dozen lines a service; this is tens of thousands of them.
_MAX_BYTES = 8 << 20
_MAX_COUNTER = 1024
_COUNTER = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(\{.*\})?", re.ASCII)
_MAX_PROBLEM = 300
_TIMEOUT_S = 4.0
_ASKED_S = 600.0
_MAX_COUNTERS = 256
_SAMPLES = 6

Labels = Mapping[str, str]


class RateError(Exception):
    """A rate that is not known; str() is one line for a person."""


def read_counter(text: str) -> tuple[str, Labels]:
    """The name and the labels of a counter, written as name{label="value"}. Raises RateError."""
    error = RateError('requests: expected a counter such as requests_total{service="web"}')
    if len(text) > _MAX_COUNTER or not _COUNTER.fullmatch(text) or "\n" in text or "#" in text:
        raise error
    try:
        (family,) = text_string_to_metric_families(f"{text} 0\n")
        (sample,) = family.samples
    except (ValueError, LookupError):  # the parser raises either
        raise error from None
    return sample.name, sample.labels


def totals(text: str, counters: Sequence[tuple[str, Labels]]) -> list[float]:
    """The sum of the samples that have each counter's name and labels, NaN where there are none.
    Raises RateError if the text is not Prometheus'."""
    names = {name for name, _ in counters}
    # Only the lines of these counters: reading one takes 20 us.
    kept = (line for line in text.splitlines() if line.partition("{")[0].partition(" ")[0] in names)
    found = [math.nan] * len(counters)
    try:
        for family in text_string_to_metric_families("\n".join(kept) + "\n"):
            for sample in family.samples:
                for at, (name, labels) in enumerate(counters):
                    if sample.name == name and labels.items() <= sample.labels.items():
                        before = 0.0 if math.isnan(found[at]) else found[at]
                        found[at] = before + float(sample.value)
    except (ValueError, LookupError) as error:
        raise RateError(f"not in Prometheus' text format: {str(error)[:100]}") from None
    return found


class Asked(NamedTuple):
    """That somebody asks for a counter."""

    counter: str
    client: tuple[Hashable, ...]  # who, from wide to narrow

    def of_level(self, level: int) -> Hashable:
        """The client as far as this level, such as only its address."""
        return self.client[: level + 1]


class RequestRates:
    """The rates of the counters that somebody asked for in the last ten minutes, at most 256: when
    there are more, whoever asks for the most loses what it asked for longest ago. The endpoints are
    read six times in `window_s`, and not at all while nobody asks."""

    def __init__(self, urls: Sequence[str], window_s: float, clock: Clock) -> None:
        self._urls = urls
        self._window_s = window_s
        self._clock = clock
        self._asked_s: dict[Asked, float] = {}
        # Times and totals of each counter, oldest first; a total is never less than the one before.
        self._samples: dict[str, deque[tuple[float, float]]] = {}
        self._counters: dict[str, tuple[str, Labels]] = {}
        self._errors = ErrorLog(log, logging.WARNING)
        self._wanted = asyncio.Event()

    def per_s(self, counter: str, client: tuple[Hashable, ...] = ()) -> float:
        """Requests per second over the window. client: who asks, from wide to narrow. Raises
        RateError while it is not known."""
        if not self._urls:
            raise RateError("the controller's setting keda.requests_urls is empty: no rate")
        asked = Asked(counter, client)
        if asked not in self._asked_s:
            read = self._counters.get(counter) or read_counter(counter)
            if len(self._asked_s) >= _MAX_COUNTERS:
                self._forget(self._least())
            self._counters[counter] = read
            self._samples.setdefault(counter, deque(maxlen=_SAMPLES + 1))
        self._asked_s[asked] = self._clock.now_s()
        self._wanted.set()
        samples = self._samples[counter]
        fresh = [each for each in samples if each[0] > self._clock.now_s() - 2 * self._window_s]
        if len(fresh) < 2:
            raise RateError(self._errors.last or f"no two values of {counter} are known yet")
        (first_s, first), (last_s, last) = fresh[0], fresh[-1]
        return (last - first) / (last_s - first_s)

    async def run(self) -> None:
        """Read the endpoints until cancelled. An error must not end it."""
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
            while True:
                await self._wanted.wait()
                self._forget_unasked()
                try:
                    await self._sample(session)
                    self._errors.succeeded()
                except Exception as error:  # noqa: BLE001  # whatever an endpoint answers
                    known = isinstance(error, RateError) or (
                        isinstance(error, aiohttp.ClientError | OSError) and str(error)
                    )
                    problem = (str(error) if known else repr(error))[:_MAX_PROBLEM]
                    self._errors.failed(problem, "no request rates: %s; trying again")
                await self._clock.sleep(self._window_s / _SAMPLES)

    def _forget_unasked(self) -> None:
        before_s = self._clock.now_s() - _ASKED_S
        for asked in [each for each, at_s in self._asked_s.items() if at_s < before_s]:
            self._forget(asked)
        if not self._counters:
            self._wanted.clear()

    def _forget(self, asked: Asked) -> None:
        del self._asked_s[asked]
        if all(each.counter != asked.counter for each in self._asked_s):
            del self._counters[asked.counter], self._samples[asked.counter]

    def _least(self) -> Asked:
        """What gives way to a new counter."""
        levels = max(len(each.client) for each in self._asked_s)
        wide_to_narrow = (partial(Asked.of_level, level=level) for level in range(levels))
        return min(of_the_fullest(self._asked_s, *wide_to_narrow), key=self._asked_s.__getitem__)

    async def _sample(self, session: aiohttp.ClientSession) -> None:
        """Add one value of each counter: its sum over the endpoints. Raises RateError if one of
        them has no answer, because a part of a sum looks like a counter that went back."""
        asked = list(self._counters)
        counters = [self._counters[each] for each in asked]
        sums = [math.nan] * len(asked)
        for url in self._urls:
            text = await _read(session, url)
            for at, total in enumerate(await asyncio.to_thread(totals, text, counters)):
                if not math.isnan(total):
                    sums[at] = total + (0.0 if math.isnan(sums[at]) else sums[at])
        now_s = self._clock.now_s()
        for counter, total in zip(asked, sums, strict=True):
            samples = self._samples.get(counter)
            if samples is None or not math.isfinite(total):
                continue
            if samples and total < samples[-1][1]:
                samples.clear()  # the endpoint was restarted
            samples.append((now_s, total))


async def _read(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(url, allow_redirects=False) as response:
        if response.status != 200:
            raise RateError(f"{url}: answered {response.status}, expected 200")
        content = await response.content.read(_MAX_BYTES + 1)
        while len(content) <= _MAX_BYTES and (more := await response.content.read(_MAX_BYTES)):
            content += more
    if len(content) > _MAX_BYTES:
        raise RateError(f"{url}: the answer has more than {_MAX_BYTES >> 20} MiB")
    return content.decode("utf-8", errors="replace")
