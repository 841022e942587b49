"""Links that downloads share fairly: a simulated network.

Rates are max-min fair (progressive filling; Bertsekas, Gallager, "Data Networks", Section
6.5.2). Downloads over the same links are one route and have one rate, so what a simulation
costs grows with the routes that are in use, not with the downloads on them.
"""

import heapq
from collections.abc import Mapping, Sequence
from itertools import count
from math import inf, isfinite

import numpy as np
import simpy
from leadline_controller.framework.view import Floats, Ints

_SAME_MOMENT_S = 1e-9
_SAME_SHARE = 1 + 1e-12  # shares that differ by less are one; sums of fractions are not exact


class Routes:
    """Which links each route uses, for `max_min_rates`. Routes and links are numbered from 0.

    routes: the links of each route, one at least, each link once. capacity_mbps: of each link,
    Mbit/s, more than 0. Raises ValueError.
    """

    def __init__(self, routes: Sequence[Sequence[int]], capacity_mbps: Sequence[float]) -> None:
        self.capacity_mbps: Floats = np.array(capacity_mbps, dtype=np.float64)
        if not ((self.capacity_mbps > 0) & np.isfinite(self.capacity_mbps)).all():
            raise ValueError("capacity_mbps: expected finite numbers above 0")
        for route in routes:
            if not route or len(set(route)) < len(route):
                raise ValueError(f"route {list(route)}: expected links, each once")
            if not all(0 <= link < len(capacity_mbps) for link in route):
                raise ValueError(f"route {list(route)}: expected links below {len(capacity_mbps)}")
        self.count = len(routes)
        self.links: Ints = np.array([link for route in routes for link in route], dtype=np.int64)
        self.owner: Ints = np.repeat(np.arange(self.count), [len(route) for route in routes])


def max_min_rates(routes: Routes, flows: Ints) -> Floats:
    """The max-min fair rate of one flow on each route, Mbit/s, shape (routes,); 0 where there
    is none. flows: how many there are on each route, shape (routes,).

    Every link offers each of its unfrozen flows an equal share of what is left of it. A link
    whose share is the least that any of its flows is offered is their bottleneck: they get that
    share, and it is taken off their other links. Such links are frozen together, for no other
    link's share can fall by it; so there are few rounds.
    """
    rates = np.zeros(routes.count)
    used = flows[routes.owner] > 0
    link, owner = routes.links[used], routes.owner[used]  # a row for each link of each route
    left, size = routes.capacity_mbps.copy(), routes.capacity_mbps.size
    while link.size:
        users = np.bincount(link, weights=flows[owner], minlength=size)
        share = left[link] / users[link]
        offered = np.full(routes.count, inf)
        np.minimum.at(offered, owner, share)
        # A link waits for as long as one of its flows is offered less elsewhere.
        waits = np.bincount(link[share > offered[owner] * _SAME_SHARE], minlength=size) > 0
        frozen = np.zeros(routes.count, dtype=np.bool_)
        frozen[owner[~waits[link]]] = True
        rates[frozen] = offered[frozen]
        gone = frozen[owner]
        taken = (flows * rates)[owner[gone]]
        left = np.maximum(left - np.bincount(link[gone], weights=taken, minlength=size), 0.0)
        link, owner = link[~gone], owner[~gone]
    return rates


class Network:
    """Links in a simulation, and the downloads on their way over them.

    env: the simulation, its clock in seconds. capacity_mbps: link -> Mbit/s. routes: name ->
    the links that its downloads use. Raises ValueError for a capacity that is not above 0, a
    route without links, and a link that has no capacity.
    """

    def __init__(
        self,
        env: simpy.Environment,
        capacity_mbps: Mapping[str, float],
        routes: Mapping[str, Sequence[str]],
    ) -> None:
        number = {link: at for at, link in enumerate(capacity_mbps)}
        if strange := {link for path in routes.values() for link in path} - number.keys():
            raise ValueError(f"link {min(strange)!r}: has no capacity")
        self._env = env
        self._routes = Routes(
            [[number[link] for link in path] for path in routes.values()],
            list(capacity_mbps.values()),
        )
        self._index = {name: at for at, name in enumerate(routes)}
        self._order = count()
        # Flows on one route all get the same, so a route's meter of what each flow that was
        # there from the start has got, Mbit, tells of every flow when it is done.
        self._meter_mbit = np.zeros(len(routes))
        self._rate_mbps = np.zeros(len(routes))
        self._flows = np.zeros(len(routes), dtype=np.int64)
        self._head_mbit = np.full(len(routes), inf)  # where on its meter the next one is done
        self._due: list[list[tuple[float, int, simpy.Event]]] = [[] for _ in routes]
        self._advanced_at_s = float(env.now)
        self._timer = 0  # timers of other numbers are out of date

    def download(self, route: str, size_mb: float) -> simpy.Event:
        """Start a download now; the event comes when it is done. size_mb: MB (10^6 bytes), 0
        or more. Raises KeyError for an unknown route and ValueError for a bad size."""
        if not isfinite(size_mb) or size_mb < 0:
            raise ValueError(f"size_mb: expected a finite number of 0 or more, got {size_mb}")
        at, done = self._index[route], self._env.event()
        self._advance()
        due_mbit = float(self._meter_mbit[at]) + size_mb * 8
        heapq.heappush(self._due[at], (due_mbit, next(self._order), done))
        self._flows[at] += 1
        self._head_mbit[at] = self._due[at][0][0]
        self._wait(0.0)  # so that rates are found once for all that start at this moment
        return done

    def rate_mbps(self, route: str) -> float:
        """What each download on the route gets now, Mbit/s; 0 where there is none. Raises
        KeyError."""
        self._settle()
        return float(self._rate_mbps[self._index[route]])

    def _advance(self) -> None:
        now_s = float(self._env.now)
        self._meter_mbit += self._rate_mbps * (now_s - self._advanced_at_s)
        self._advanced_at_s = now_s

    def _wait(self, delay_s: float) -> None:
        self._timer += 1
        timeout = self._env.timeout(delay_s, value=self._timer)
        timeout.callbacks.append(self._on_time)

    def _on_time(self, timer: simpy.Event) -> None:
        if timer.value == self._timer:
            self._settle()

    def _settle(self) -> None:
        """Hand out what is done, find the rates anew, and wait for the next to be done."""
        self._advance()
        reached = self._meter_mbit + self._rate_mbps * _SAME_MOMENT_S
        for at in np.flatnonzero(self._head_mbit <= reached):
            self._finish(int(at), float(reached[at]))
        self._rate_mbps = max_min_rates(self._routes, self._flows)
        busy = np.flatnonzero(self._flows)
        if busy.size:
            left_mbit = self._head_mbit[busy] - self._meter_mbit[busy]
            self._wait(max(float((left_mbit / self._rate_mbps[busy]).min()), 0.0))

    def _finish(self, route: int, reached_mbit: float) -> None:
        due = self._due[route]
        while due and due[0][0] <= reached_mbit:
            heapq.heappop(due)[2].succeed()
            self._flows[route] -= 1
        if not due:
            self._meter_mbit[route] = 0.0  # so that it never grows past what doubles tell apart
        self._head_mbit[route] = due[0][0] if due else inf
