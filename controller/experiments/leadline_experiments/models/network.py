"""A simulated network, whose links downloads share fairly.

Rates are max-min fair (progressive filling; Bertsekas, Gallager, "Data Networks", Section
6.5.2). Downloads over the same links belong to one route and have one rate, so the cost of a
simulation grows with the routes in use, not with the downloads.
"""

import heapq
from collections.abc import Mapping, Sequence
from itertools import count
from math import inf, isfinite

import numpy as np
import simpy
from leadline_controller.framework.view import Floats, Ints

_SAME_MOMENT_S = 1e-9
_SAME_SHARE = 1 + 1e-12  # shares that differ by less are equal; sums of fractions are not exact


class Routes:
    """The links of each route, for `max_min_rates`. Routes and links are numbered from 0.

    routes: the links of each route, at least one, each once. capacity_mbps: of each link, more
    than 0. Raises ValueError.
    """

    def __init__(self, routes: Sequence[Sequence[str]], capacity_mbps: Mapping[str, float]) -> None:
        self.capacity_mbps: Floats = np.array(list(capacity_mbps.values()), dtype=np.float64)
        if not ((self.capacity_mbps > 0) & np.isfinite(self.capacity_mbps)).all():
            raise ValueError("capacity_mbps: expected finite numbers above 0")
        number = {link: at for at, link in enumerate(capacity_mbps)}
        for route in routes:
            if not route or len(set(route)) < len(route):
                raise ValueError(f"route {list(route)}: expected links, each once")
            if unknown := set(route) - number.keys():
                raise ValueError(f"link {min(unknown)!r}: has no capacity")
        self.count = len(routes)
        links = [number[link] for route in routes for link in route]
        self.links: Ints = np.array(links, dtype=np.int64)
        self.owner: Ints = np.repeat(np.arange(self.count), [len(route) for route in routes])


def max_min_rates(routes: Routes, flows: Ints) -> Floats:
    """The max-min fair rate of one flow on each route, Mbit/s, shape (routes,); 0 on a route
    without flows. flows: their number on each route, shape (routes,).

    Every link offers each of its unfrozen flows an equal share of its remaining capacity. A link
    is the bottleneck of its flows if none of them gets a smaller offer elsewhere: they get its
    share, and their other links lose it. All bottlenecks of a round are frozen together, because
    this lowers no other link's share; so there are few rounds.
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
        # A link waits while another link offers less to one of its flows.
        waits = np.bincount(link[share > offered[owner] * _SAME_SHARE], minlength=size) > 0
        frozen = np.zeros(routes.count, dtype=np.bool_)
        frozen[owner[~waits[link]]] = True
        rates[frozen] = offered[frozen]
        done = frozen[owner]
        used_mbps = (flows * rates)[owner[done]]
        left = np.maximum(left - np.bincount(link[done], weights=used_mbps, minlength=size), 0.0)
        link, owner = link[~done], owner[~done]
    return rates


class Network:
    """The links of a simulation and the downloads over them.

    env: the simulation, its clock in seconds. capacity_mbps: link -> Mbit/s. routes: name ->
    links of its downloads. Raises ValueError for a capacity of 0 or less, a route without links,
    and a link without capacity.
    """

    def __init__(
        self,
        env: simpy.Environment,
        capacity_mbps: Mapping[str, float],
        routes: Mapping[str, Sequence[str]],
    ) -> None:
        self._env = env
        self._routes = Routes(list(routes.values()), capacity_mbps)
        self._index = {name: at for at, name in enumerate(routes)}
        self._order = count()
        # All flows of a route have the same rate. So one counter per route is enough: the Mbit that
        # a flow has received since the route became busy. A flow is done when the counter reaches
        # its value at the start of the flow plus the flow's size.
        self._per_flow_mbit = np.zeros(len(routes))
        self._rate_mbps = np.zeros(len(routes))
        self._flows = np.zeros(len(routes), dtype=np.int64)
        # The counter's value when the next flow is done.
        self._next_done_mbit = np.full(len(routes), inf)
        self._due: list[list[tuple[float, int, simpy.Event]]] = [[] for _ in routes]
        self._advanced_at_s = float(env.now)
        self._timer_number = 0  # timers with another number are out of date

    def download(self, route: str, size_mb: float) -> simpy.Event:
        """Start a download now and return the event of its end. size_mb: MB (10^6 bytes), 0 or
        more. Raises KeyError for an unknown route and ValueError for a bad size."""
        if not isfinite(size_mb) or size_mb < 0:
            raise ValueError(f"size_mb: expected a finite number of 0 or more, got {size_mb}")
        at, done = self._index[route], self._env.event()
        self._advance()
        due_mbit = float(self._per_flow_mbit[at]) + size_mb * 8
        heapq.heappush(self._due[at], (due_mbit, next(self._order), done))
        self._flows[at] += 1
        self._next_done_mbit[at] = self._due[at][0][0]
        self._set_timer(0.0)  # computes the rates once for all downloads that start at this moment
        return done

    def _advance(self) -> None:
        now_s = float(self._env.now)
        self._per_flow_mbit += self._rate_mbps * (now_s - self._advanced_at_s)
        self._advanced_at_s = now_s

    def _set_timer(self, delay_s: float) -> None:
        self._timer_number += 1
        timeout = self._env.timeout(delay_s, value=self._timer_number)
        timeout.callbacks.append(self._on_time)

    def _on_time(self, timer: simpy.Event) -> None:
        if timer.value == self._timer_number:
            self._update()

    def _update(self) -> None:
        """End the downloads that are done, compute the rates, and set a timer for the next end."""
        self._advance()
        reached = self._per_flow_mbit + self._rate_mbps * _SAME_MOMENT_S
        for at in np.flatnonzero(self._next_done_mbit <= reached):
            self._finish(int(at), float(reached[at]))
        self._rate_mbps = max_min_rates(self._routes, self._flows)
        busy = np.flatnonzero(self._flows)
        if busy.size:
            left_mbit = self._next_done_mbit[busy] - self._per_flow_mbit[busy]
            self._set_timer(max(float((left_mbit / self._rate_mbps[busy]).min()), 0.0))

    def _finish(self, route: int, reached_mbit: float) -> None:
        due = self._due[route]
        while due and due[0][0] <= reached_mbit:
            heapq.heappop(due)[2].succeed()
            self._flows[route] -= 1
        if not due:
            self._per_flow_mbit[route] = 0.0  # a growing counter would lose precision
        self._next_done_mbit[route] = due[0][0] if due else inf
