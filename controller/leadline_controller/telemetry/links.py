"""Round trips and bandwidth between pairs of nodes, each with its age.

Round trips are in columns, because thousands of nodes report them between two decisions and each
decision needs a table of them. Times are seconds on the controller's monotonic clock.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from itertools import chain, combinations, zip_longest
from math import inf, isnan, log
from weakref import ref

import numpy as np

from leadline_controller.framework.link_table import LinkTable
from leadline_controller.framework.view import Bools, Floats, Ints, NodeTable
from leadline_controller.telemetry.coordinates import EstimatesOf, RttEstimates
from leadline_controller.telemetry.jumps import Jumps
from leadline_controller.telemetry.link_status import (
    STALE_SHARE,
    LinkStatus,
    Pair,
    PairTable,
    add_estimates,
    measured,
    pair_of,
)
from leadline_controller.telemetry.pair_tests import PairTests
from leadline_controller.telemetry.paths import (
    LEAST_RTT_MS,
    LOST_ROUNDS,
    PATH,
    Path,
    PingRound,
    after,
    flapping,
)

_MAX_LINKS = 200_000
_FEW_LINKS = 1000  # so few take no time that counts
# The pairs of broker legs grow with the square of the boards. They only replace ICMP where it is
# not permitted; beyond this many boards such a pair is unknown.
_MAX_LEGS = 64
# One row for each pair. said_ms, said_at_s: the last round with replies as each end reported it.
# then_ms: what it had reported last when the other end did.
_ROW = np.dtype(
    [("path", PATH), ("said_ms", "f8", 2), ("said_at_s", "f8", 2), ("then_ms", "f8", 2)]
)
_UNSAID = (np.nan, np.nan)
_EMPTY = np.array([(tuple(Path()), _UNSAID, (-np.inf, -np.inf), _UNSAID)], dtype=_ROW)
# A round that differs is to be repeated within this time; of so many pairs at once.
_CONFIRM_S, _MAX_UNCONFIRMED = 60.0, 1000
_COVERAGE = 0.9  # the share of true round trips within the error
_MAX_DEVIATIONS = 512
_ERROR_SHARE = 0.8  # a median of rounds is nearer to the truth than a round to the median
_STANDARD = 0.68  # the share of values within one standard deviation
# The standard deviation of a median of three, as a share of that of a round from a median.
_MEDIAN_SHARE = 0.55
_UNKNOWN_DEVIATION = 0.3  # relative, until pairs have been measured twice
_FEWEST_NODES = 5
# A round that is so much longer than the median before shows a queue, if two peers see it.
_JUMP, _LEAST_JUMP_MS = 3.0, 10.0


class LinkState:
    """All pairs of nodes with a measurement, and estimates of the other pairs' round trips.

    Of the last three rounds of a pair the median counts (paths.py). The rounds of nodes that
    contradict their peers are only recorded.
    refused: how many rounds had no place because too many pairs are stored. tests: the last
    bandwidth test of each pair. jumps: which nodes' round trips just became far longer.
    """

    def __init__(self, rtt_ttl_s: float, bandwidth_ttl_s: float) -> None:
        self._rtt_ttl_s = rtt_ttl_s
        self.refused = 0
        self._rows: dict[Pair, int] = {}
        self._numbers: dict[str, int] = {}
        self._ends = np.zeros((64, 2), dtype=np.int64)  # the numbers of both nodes
        self._columns = _EMPTY.repeat(64)
        self._contradicting: frozenset[str] = frozenset()
        self._unconfirmed: dict[Pair, float] = {}  # since when
        # |log(newest round / median before)| of pairs that are measured again
        self._deviations: deque[float] = deque(maxlen=_MAX_DEVIATIONS)
        self._estimates: RttEstimates | None = None
        self.tests = PairTests(bandwidth_ttl_s)
        self.jumps = Jumps()
        self._legs: dict[str, tuple[float, float]] = {}
        self._version = 0
        self._cached: tuple[object, LinkTable] | None = None

    def set_round(self, node: str, peer: str, round_: PingRound, at_s: float) -> None:
        """Store a round of pings by ICMP, unless a newer one is stored."""
        pair = pair_of(node, peer)
        row = self._row(pair)
        if row is None:
            self.refused += 1
            return
        end = pair.index(node)
        # Each column is read once, as a large fleet stores hundreds of rounds a second.
        columns = self._columns
        paths, said = columns["path"], columns["said_at_s"]
        said_at_s = said.item(row, end)
        path = Path._make(paths.item(row))
        if at_s < max(path.at_s, path.lost_at_s, said_at_s):
            return
        before_ms, is_known = path.rtt_ms, at_s - path.at_s <= self._rtt_ttl_s
        if round_.rtt_ms is None:
            # Where the pings of one end never arrive, for example at a firewall, those of the other
            # end count alone.
            is_new = at_s - said_at_s > self._rtt_ttl_s
            counts = node not in self._contradicting and not (is_new and is_known)
        else:
            said_ms = columns["said_ms"]
            said_ms[row, end] = max(round_.rtt_ms, LEAST_RTT_MS)
            said[row, end] = at_s
            columns["then_ms"][row, 1 - end] = said_ms[row, 1 - end]
            counts = node not in self._contradicting
        if not counts:
            return
        path = after(path, round_, at_s, self._rtt_ttl_s)
        if is_known and round_.rtt_ms is not None:
            self._deviations.append(abs(log(path.newest_ms / before_ms)))
            if path.newest_ms > max(_JUMP * before_ms, before_ms + _LEAST_JUMP_MS):
                self.jumps.note(pair, at_s)
        paths[row] = path
        if not path.is_unconfirmed:
            self._unconfirmed.pop(pair, None)
        elif len(self._unconfirmed) < _MAX_UNCONFIRMED:
            self._unconfirmed.setdefault(pair, at_s)
        self._version += 1

    def _row(self, pair: Pair) -> int | None:
        """The pair's row, a new one if needed; None if there are too many."""
        row = self._rows.get(pair)
        if row is None and len(self._rows) < _MAX_LINKS:
            row = self._rows[pair] = len(self._rows)
            if row == len(self._ends):
                self._ends = np.concatenate((self._ends, np.zeros_like(self._ends)))
                self._columns = np.concatenate((self._columns, _EMPTY.repeat(row)))
            self._ends[row] = [self._number(end) for end in pair]
        return row

    def set_broker_leg(self, node: str, rtt_ms: float, at_s: float) -> None:
        """Store a board's round trip to the broker, ms: its leg, where it may not send ICMP."""
        if node not in self._legs and len(self._legs) >= _MAX_LEGS:
            self._legs = {
                name: leg for name, leg in self._legs.items() if at_s - leg[1] <= self._rtt_ttl_s
            }
        if node in self._legs or len(self._legs) < _MAX_LEGS:
            self._legs[node] = (rtt_ms, at_s)
            self._version += 1

    def fresh(
        self,
        now_s: float,
        estimated_from: Iterable[str] = (),
        node: str | None = None,
        pairs: Set[tuple[str, str]] | None = None,
    ) -> Callable[[], list[LinkStatus]]:
        """Every pair with a value that is known now, of `node` alone if there is one, or these
        sorted `pairs`, of which the unmeasured ones are estimated; values that are too old are
        None.

        estimated_from: the nodes whose unmeasured round trips are estimated, without an age.
        The status of many pairs takes up to a second to make. So this copies what they need, and
        the function that it returns makes them, without the lock.
        """
        rows: Ints = np.flatnonzero(self._has_rtt(now_s) | self._is_unreachable(now_s))
        if node is not None:
            number = self._numbers.get(node, -1)
            rows = rows[(self._ends[rows] == number).any(axis=1)]
        if pairs is not None:
            wanted = [self._rows[pair] for pair in pairs if pair in self._rows]
            rows = np.intersect1d(rows, np.array(wanted, dtype=np.int64))
        names, ends = tuple(self._numbers), self._ends[rows]
        paths = self._columns["path"][rows]
        values_ms, is_flapping = self._values(rows, now_s), flapping(paths, now_s)
        bounds = [
            x
            for x in self._broker_bounds(now_s)
            if (node is None or node in x[:2]) and (pairs is None or x[:2] in pairs)
        ]
        tests = [
            (pair, test)
            for pair, test in self.tests.fresh(now_s)
            if (node is None or node in pair) and (pairs is None or pair in pairs)
        ]
        noise, estimates = self._noise(), self._estimates

        def statuses() -> list[LinkStatus]:
            found = {}
            columns = (each.tolist() for each in (ends, paths, values_ms, is_flapping))
            for (one, other), fields, rtt_ms, flaps in zip(*columns, strict=True):
                path = Path._make(fields)
                age = (now_s - path.at_s) / self._rtt_ttl_s
                bare = LinkStatus(names[one], names[other], flapping=flaps)
                found[bare.a, bare.b] = measured(bare, path, rtt_ms, noise, age)
            for a, b, rtt_ms, at_s in bounds:
                found[a, b] = LinkStatus(a, b, rtt_ms, at_s, "mqtt", "measured", rtt_ms)
            for pair, test in tests:
                found[pair] = replace(
                    found.get(pair, LinkStatus(*pair)),
                    bandwidth_mbps=test.mbps,
                    bandwidth_at_s=test.at_s,
                    lower_bound=test.lower_bound,
                    is_host_limited=test.is_host_limited,
                )
            if estimates is not None:
                for each in estimated_from:
                    add_estimates(estimates, each, found)
                for a, b in sorted(pairs or ()):
                    add_estimates(estimates, a, found, b)
            return list(found.values())

        return statuses

    def _noise(self) -> float:
        """The relative deviation of 90 % of the rounds from the median of their pair."""
        if not self._deviations:
            return _UNKNOWN_DEVIATION
        return float(np.expm1(_ERROR_SHARE * np.quantile(self._deviations, _COVERAGE)))

    def _values(self, rows: Ints, now_s: float) -> Floats:
        """The round trips of these rows, ms; of a flapping path the higher one of its levels."""
        rtt_ms, paths = self._smoothed(rows), self._columns["path"][rows]
        flaps = flapping(paths, now_s)
        return np.where(flaps, np.fmax(rtt_ms, paths["higher_ms"]), rtt_ms)

    def _smoothed(self, rows: Ints) -> Floats:
        """The measured round trips of these rows, ms, with less noise where estimates help."""
        estimates, rtt_ms = self._estimates, self._columns["path"]["rtt_ms"][rows]
        if estimates is None or not self._deviations:
            return rtt_ms
        noise = _MEDIAN_SHARE * float(np.quantile(self._deviations, _STANDARD))
        return estimates.smoothed(self._places(estimates)[self._ends[rows]], rtt_ms, noise)

    def pairs(self, now_s: float, *, by_broker: bool) -> PairTable:
        """What `fresh` reads, in columns. by_broker: with the pairs of which only the way over the
        broker is known."""
        is_lost = self._is_unreachable(now_s)
        rows: Ints = np.flatnonzero(self._has_rtt(now_s) | is_lost)
        is_lost, paths = is_lost[rows], self._columns["path"][rows]
        age = (now_s - paths["at_s"]) / self._rtt_ttl_s
        rtt_ms = np.where(is_lost, np.nan, self._values(rows, now_s))
        noise_ms = rtt_ms * self._noise() * (1 + np.maximum(age, 0.0))
        with np.errstate(invalid="ignore"):  # no packet was sent
            loss = np.where(is_lost, 1.0, 1 - paths["received"] / paths["sent"])
        tests = sorted((-test.at_s, pair, test.mbps) for pair, test in self.tests.fresh(now_s))
        pairs = PairTable(
            names=tuple(self._numbers),
            ends=self._ends[rows],
            rtt_ms=np.where(is_lost, np.inf, rtt_ms),
            error_ms=np.maximum(noise_ms, rtt_ms - paths["rtt_ms"]),
            near_ms=paths["rtt_ms"],
            loss=loss,
            is_stale=(age > STALE_SHARE) & ~is_lost,
            tested={pair: mbps for _, pair, mbps in tests},
            estimates=self._estimates,
        )
        if by_broker and (bounds := self._broker_bounds(now_s)):
            return pairs.with_bounds([(a, b, most_ms) for a, b, most_ms, _ in bounds])
        return pairs

    # Estimates: the fit takes longer than the lock may be held.

    def measured(self, now_s: float) -> tuple[tuple[str, ...], Ints, Floats, RttEstimates | None]:
        """The input of `estimate`: names, pairs, round trips and the last result. No pairs if the
        nodes are too few for coordinates to mean anything."""
        rows = np.flatnonzero(self._has_rtt(now_s))
        if len(np.unique(self._ends[rows])) < _FEWEST_NODES:
            rows = rows[:0]
        rtt_ms = self._columns["path"]["rtt_ms"][rows]
        return tuple(self._numbers), self._ends[rows], rtt_ms, self._estimates

    def since(self, since_s: float) -> tuple[tuple[str, ...], Ints, Floats]:
        """Names, the pairs measured after `since_s` as indices into these, and their round trips,
        ms."""
        paths = self._columns["path"][: len(self._rows)]
        rows = np.flatnonzero(paths["at_s"] > since_s)
        return tuple(self._numbers), self._ends[rows], paths["rtt_ms"][rows]

    def set_estimates(self, estimates: RttEstimates) -> None:
        """Store the newest estimates."""
        self._estimates = estimates
        self._version += 1

    def nearest_unknown(
        self, nodes: Sequence[str], count: int, now_s: float
    ) -> dict[str, list[str]]:
        """For each of these nodes, the names of up to `count` others that are probably nearest to
        it and whose round trip from it is unknown or stale, the most probable first.

        One pass over all pairs, and O(n) for each of the nodes.
        """
        estimates = self._estimates
        if estimates is None:
            return {}
        numbers = {self._numbers[node]: node for node in nodes if node in self._numbers}
        ends = self._ends[: len(self._rows)]
        paths = self._columns["path"][: len(self._rows)]
        measured_at_s = np.maximum(paths["at_s"], paths["lost_at_s"])
        fresh = now_s - measured_at_s <= self._rtt_ttl_s * STALE_SHARE
        is_asked = np.zeros(len(self._numbers), dtype=np.bool_)
        is_asked[list(numbers)] = True
        known: dict[str, list[int]] = {node: [] for node in numbers.values()}
        for near, far in ((0, 1), (1, 0)):
            rows = ends[fresh & is_asked[ends[:, near]]]
            for number, other in zip(rows[:, near].tolist(), rows[:, far].tolist(), strict=True):
                known[numbers[number]].append(other)
        places = self._places(estimates)
        nearest: dict[str, list[str]] = {}
        for node, others in known.items():
            if node in estimates.index:
                at = estimates.index[node]
                others_at = places[others]
                known_at = np.append(others_at[others_at >= 0], at)
                low_ms, high_ms = estimates.bounds_ms(at)
                # In turn, because each may be wrong: nodes near to near ones, nodes that could be
                # at the same site, and the nearest ones if they share nothing.
                orders = []
                for by_ms in (high_ms, low_ms, estimates.coordinates.rtt_ms_from(at)):
                    by_ms[known_at] = np.inf
                    first = np.argpartition(by_ms, min(count, len(by_ms) - 1))[:count]
                    first = first[np.argsort(by_ms[first])]
                    orders.append(first[by_ms[first] < np.inf].tolist())
                found = dict.fromkeys(chain.from_iterable(zip_longest(*orders)))
                kept = [each for each in found if each is not None]
                nearest[node] = [estimates.names[each] for each in kept[:count]]
        return nearest

    def unconfirmed(self, now_s: float) -> dict[str, list[str]]:
        """Node -> the peers whose last round differs from those before, so that another one is to
        show soon if that lasts."""
        self._unconfirmed = {
            pair: at_s for pair, at_s in self._unconfirmed.items() if now_s - at_s <= _CONFIRM_S
        }
        peers: dict[str, list[str]] = {}
        for a, b in self._unconfirmed:
            peers.setdefault(a, []).append(b)
            peers.setdefault(b, []).append(a)
        return peers

    # Contradictions: contradictions.py finds them, outside of the lock.

    def reports(self, now_s: float) -> tuple[tuple[str, ...], Ints, Floats, Floats]:
        """Names, m pairs as indexes of both ends, shape (m, 2), and the last round trip that each
        end reported, ms, shape (m, 2), NaN if unknown or too old. Then, by how much the end that
        reported last has changed its mind since the other one reported, |log(ratio)|, shape (m,);
        if it had not reported before, 0 within a minute, and then infinite."""
        columns, count = self._columns[: len(self._rows)], len(self._rows)
        said_ms = np.where(
            now_s - columns["said_at_s"] <= self._rtt_ttl_s, columns["said_ms"], np.nan
        )
        rows, last = np.arange(count), columns["said_at_s"].argmax(axis=1)
        moved = abs(np.log(columns["said_ms"][rows, last] / columns["then_ms"][rows, last]))
        with np.errstate(invalid="ignore"):  # neither end ever had a reply
            is_late = abs(np.subtract(*columns["said_at_s"].T)) > _CONFIRM_S
        moved = np.where(np.isnan(moved), np.where(is_late, np.inf, 0.0), moved)
        return tuple(self._numbers), self._ends[:count].copy(), said_ms, moved

    def set_contradicting(self, nodes: Set[str]) -> None:
        """From now on the rounds of these nodes do not count. Pairs with one that is new have the
        last round of the other end alone."""
        new = [self._numbers[node] for node in nodes - self._contradicting if node in self._numbers]
        self._contradicting = frozenset(nodes)
        if not new:
            return
        is_out = np.zeros(len(self._numbers), dtype=np.bool_)
        is_out[[self._numbers[node] for node in nodes if node in self._numbers]] = True
        ends = self._ends[: len(self._rows)]
        rows = np.flatnonzero(np.isin(ends, new).any(axis=1))
        columns, believed = self._columns[rows], ~is_out[ends[rows]]
        paths = _EMPTY["path"].repeat(len(rows))
        for end in (0, 1):
            # At most one end of these pairs is believed.
            paths["at_s"][believed[:, end]] = columns["said_at_s"][believed[:, end], end]
            for each in ("rtt_ms", "newest_ms"):
                paths[each][believed[:, end]] = columns["said_ms"][believed[:, end], end]
        self._columns["path"][rows] = paths
        self._version += 1

    def _places(self, estimates: RttEstimates) -> Ints:
        """For each number of a node, its index in the estimates; -1 for a newer node."""
        return np.array([estimates.index.get(name, -1) for name in self._numbers], dtype=np.int64)

    def rtt_ms_of(self, a: str, b: str, now_s: float) -> float | None:
        """The round trip of a pair, measured, else by its coordinates; None if unknown, and
        infinite if the last rounds got no reply."""
        row = self._rows.get(pair_of(a, b))
        if row is not None:
            path = Path._make(self._columns["path"][row].item())
            if path.lost_rounds == LOST_ROUNDS and now_s - path.lost_at_s <= self._rtt_ttl_s:
                return inf
            if now_s - path.at_s <= self._rtt_ttl_s:
                return path.rtt_ms
        estimates = self._estimates
        if estimates is None or a not in estimates.index or b not in estimates.index:
            return None
        rtt_ms = estimates.coordinates.rtt_ms(estimates.index[a], estimates.index[b])
        return None if isnan(rtt_ms) else rtt_ms

    def table(self, nodes: NodeTable, now_s: float) -> LinkTable:
        """The round trips between `nodes`. The result is cached until one changes or a second has
        passed, as a value may have become too old.

        A table of many pairs takes milliseconds, and one of them changes before every decision: so
        it is only made once a second.
        """
        version = self._version if len(self._rows) <= _FEW_LINKS else None
        key = (ref(nodes), version, int(now_s))  # keeps no nodes in memory
        if self._cached is None or self._cached[0] != key:
            self._cached = (key, self._table(nodes, now_s))
        return self._cached[1]

    def _table(self, nodes: NodeTable, now_s: float) -> LinkTable:
        places = np.array([nodes.index.get(name, -1) for name in self._numbers], dtype=np.int64)
        rows = np.flatnonzero(self._has_rtt(now_s))
        ends: Ints = places[self._ends[rows]].reshape(-1, 2)
        rtt_ms, at_s = self._values(rows, now_s), self._columns["path"]["at_s"][rows]
        bounds = [
            (nodes.index[a], nodes.index[b], *leg)
            for a, b, *leg in self._broker_bounds(now_s)
            if a in nodes.index and b in nodes.index
        ]
        if bounds:
            ends = np.concatenate((ends, [(a, b) for a, b, _, _ in bounds]))
            rtt_ms = np.concatenate((rtt_ms, [leg_ms for _, _, leg_ms, _ in bounds]))
            at_s = np.concatenate((at_s, [leg_at_s for _, _, _, leg_at_s in bounds]))
        here = (ends >= 0).all(axis=1)
        estimates = None if self._estimates is None else EstimatesOf(self._estimates, nodes.names)
        lost: Ints = places[self._ends[np.flatnonzero(self._is_unreachable(now_s))]].reshape(-1, 2)
        lost = lost[(lost >= 0).all(axis=1)]
        return LinkTable.of_columns(
            len(nodes), ends[here], rtt_ms[here], at_s[here], estimates, unreachable=lost
        )

    def _broker_bounds(self, now_s: float) -> list[tuple[str, str, float, float]]:
        """(a, b, ms, when measured) of the pairs without a fresh round trip of their own.

        Each leg crosses one of the two boards' links and the broker, so together they bound
        the pair's round trip from above.
        """
        ttl_s = self._rtt_ttl_s
        legs = [(n, *leg) for n, leg in self._legs.items() if now_s - leg[1] <= ttl_s]
        bounds = []
        for (a, a_ms, a_at_s), (b, b_ms, b_at_s) in combinations(sorted(legs), 2):
            row = self._rows.get((a, b))
            if row is None or now_s - self._columns["path"]["at_s"][row] > ttl_s:
                bounds.append((a, b, a_ms + b_ms, min(a_at_s, b_at_s)))
        return bounds

    def drop_old(self, now_s: float) -> None:
        """Remove what is too old; of the rows of round trips only once they are half of all, or
        a twentieth of the places when these are nearly all taken: it takes 0.1 s."""
        self.tests.drop_old(now_s)
        self.jumps.drop_old(now_s - self._rtt_ttl_s)
        kept = np.flatnonzero(self._has_rtt(now_s) | self._is_unreachable(now_s))
        dead, is_nearly_full = len(self._rows) - len(kept), len(self._rows) > 0.9 * _MAX_LINKS
        if dead <= (_MAX_LINKS // 20 if is_nearly_full else max(len(kept), _FEW_LINKS)):
            return
        pairs, names = list(self._rows), list(self._numbers)  # in the order of their rows
        self._rows = {pairs[row]: place for place, row in enumerate(kept.tolist())}
        numbers, ends = np.unique(self._ends[kept], return_inverse=True)
        self._numbers = {names[number]: place for place, number in enumerate(numbers.tolist())}
        self._ends[: len(kept)] = ends.reshape(-1, 2)
        whole = self._columns.view(f"V{_ROW.itemsize}")  # copied five times as fast as its fields
        whole[: len(kept)] = whole[kept]
        self._columns[len(kept) :] = _EMPTY
        self._version += 1

    def _has_rtt(self, now_s: float) -> Bools:
        """For each row, whether its round trip is not too old, and the peer was not lost since."""
        paths = self._columns["path"][: len(self._rows)]
        is_there: Bools = paths["lost_rounds"] < LOST_ROUNDS
        return is_there & (now_s - paths["at_s"] <= self._rtt_ttl_s)

    def _is_unreachable(self, now_s: float) -> Bools:
        """For each row, whether the last rounds got no reply."""
        paths = self._columns["path"][: len(self._rows)]
        is_lost: Bools = paths["lost_rounds"] == LOST_ROUNDS
        return is_lost & (now_s - paths["lost_at_s"] <= self._rtt_ttl_s)

    def _number(self, node: str) -> int:
        return self._numbers.setdefault(node, len(self._numbers))
