"""How long a service works on one request, over HTTP, with the round trip taken off.

Each request has a connection of its own. Connecting takes one round trip, and the request takes one
round trip and the work, so the shortest of the connects is taken off. What the answer takes to
arrive is part of the work: measure a page of the usual size.
"""

import statistics
import time
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException

_MAX_BYTES = 16 << 20
# The first requests fill caches, and a service that sleeps wakes up.
_WARM_UP = 2


class TimingError(Exception):
    """A service that can't be measured; str() is one line for a person."""


@dataclass(frozen=True, slots=True)
class Timing:
    """ms, deviation_ms: median and standard deviation of the work. rtt_ms: of the connects, the
    shortest."""

    ms: float
    deviation_ms: float
    rtt_ms: float


def timed(host: str, port: int, path: str, requests: int, timeout_s: float) -> Timing:
    """Send requests one after the other, three at least. Raises TimingError."""
    where = f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"
    connects_ms, answers_ms = [], []
    for number in range(_WARM_UP + requests):
        client = HTTPConnection(host, port, timeout=timeout_s)
        try:
            start_s = time.perf_counter()
            client.connect()
            connected_s = time.perf_counter()
            client.request("GET", path, headers={"Connection": "close"})
            answer = client.getresponse()
            length = len(answer.read(_MAX_BYTES + 1))
            end_s = time.perf_counter()
        except TimeoutError:
            raise TimingError(f"{where}: no answer within {timeout_s:g} s") from None
        except (HTTPException, OSError) as error:
            raise TimingError(f"{where}: {error or type(error).__name__}") from None
        finally:
            client.close()
        if answer.status >= 400:
            raise TimingError(f"{where}: answered {answer.status}; name a page with --path")
        if length > _MAX_BYTES:
            raise TimingError(f"{where}: the page has more than {_MAX_BYTES >> 20} MiB")
        if number >= _WARM_UP:
            connects_ms.append((connected_s - start_s) * 1000)
            answers_ms.append((end_s - connected_s) * 1000)
    rtt_ms = min(connects_ms)
    # A service is never faster than the clock can tell.
    works_ms = [max(each - rtt_ms, 0.001) for each in answers_ms]
    return Timing(statistics.median(works_ms), statistics.stdev(works_ms), rtt_ms)
