"""When a placement is worth a second look: what was measured of its node has been worse than when
the pod came there, for long enough. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView
from leadline_controller.history.explanation import measured

# More of these is worse, and how much more at least; less bandwidth is worse. The other metrics are
# the traffic of the pods themselves.
_LEAST_RISE = {"rtt_ms": 2.0, "cpu_percent": 20.0, "memory_percent": 20.0}
_BANDWIDTH = "bandwidth_mbps"
_LINKS = ("rtt_ms", _BANDWIDTH)
# An update or a backup keeps a board busy for minutes, and a pod that fled it would gain little. So
# so many plans in a row, `worse_for_s` apart, must move a pod, unless a link has just become worse:
# by default 15 minutes, the time over which Trimaran (Kubernetes' scheduler-plugins) takes load.
_PLANS = 3


@dataclass(frozen=True, slots=True)
class Worse:
    """A placement that is worse than assumed."""

    pod: Pod
    node: str
    since_s: float  # on the clock of the views
    why: str  # one sentence
    of_link: bool = False  # a link is worse, and no plan was made since it became so


@dataclass(slots=True)
class _Placement:
    node: str
    assumed: dict[str, float] = field(default_factory=dict)
    # Since when each of what was measured has been worse without a break.
    worse_since_s: dict[str, float] = field(default_factory=dict)
    planned: set[str] = field(default_factory=set)  # of these, those with a plan since then
    moving: int = 0  # how many of the last plans would have moved the pod, without a break


class Assumptions:
    """What was measured of each pod's node when it was chosen, as the strategy needs it.

    worse_by: the share by which a value must be worse. Without the decision, and for a value that
    it did not know, what is known first counts. peer_is_user: see `measured`.
    """

    def __init__(
        self, needs: Iterable[str], worse_by: float, *, peer_is_user: bool = False
    ) -> None:
        self._peer_is_user = peer_is_user
        self._needs = [name for name in needs if name == _BANDWIDTH or name in _LEAST_RISE]
        self._worse_by = worse_by
        self._placements: dict[str, _Placement] = {}

    def knows(self, uid: str) -> bool:
        """Whether a look has seen the pod with this uid."""
        return uid in self._placements

    def look(
        self,
        view: ClusterView,
        running: Iterable[tuple[Pod, str]],
        now_s: float,
        decided_on: Callable[[Pod, str], Mapping[str, float]] = lambda _pod, _node: {},
    ) -> list[Worse]:
        """The placements that are worse than assumed now, and since when without a break: each at
        most twice, by a link that has become worse and by all else.
        decided_on: what the decision that placed this pod on this node knew of it, NaN if that was
        unknown; empty if the decision is no longer known."""
        found, kept = [], {}
        for pod, node in running:
            at = view.table.index.get(node)
            if at is None:
                continue
            placement = self._placements.get(pod.uid)
            if placement is None or placement.node != node:
                placement = _Placement(node)
                placement.assumed |= self._known(decided_on(pod, node))
            kept[pod.uid] = placement
            nodes = np.array([at])
            columns = measured(view, pod, self._needs, nodes, peer_is_user=self._peer_is_user)
            now = self._known({name: float(column[0]) for name, column in columns.items()})
            for name, value in now.items():
                placement.assumed.setdefault(name, value)
            why = self._why_worse(placement.assumed, now, node)
            before_s = placement.worse_since_s
            placement.worse_since_s = {name: before_s.get(name, now_s) for name in why}
            placement.planned &= why.keys()
            if not why:
                placement.moving = 0
            links = [name for name in why if name in _LINKS and name not in placement.planned]
            others = [name for name in why if name not in links]
            for names in filter(None, (others, links)):
                name = min(names, key=placement.worse_since_s.__getitem__)
                since_s = placement.worse_since_s[name]
                found.append(Worse(pod, node, since_s, why[name], names is links))
        self._placements = kept
        return found

    def may_move(self, worse: Worse, now_s: float, *, moves: bool) -> bool:
        """A plan was made because of this. moves: whether it moves the pod. Returns whether it is
        to do so now. Only if the placement stays worse as long again, another plan is made."""
        placement = self._placements.get(worse.pod.uid)
        if placement is None:
            return moves
        placement.moving = placement.moving + 1 if moves else 0
        # A link that became worse only just has a plan of its own.
        names = [
            name
            for name in placement.worse_since_s
            if worse.of_link or name not in _LINKS or name in placement.planned
        ]
        placement.planned.update(names)
        placement.worse_since_s |= dict.fromkeys(names, now_s)
        return moves and (worse.of_link or placement.moving >= _PLANS)

    def _known(self, values: Mapping[str, float]) -> dict[str, float]:
        known = {name: values.get(name, np.nan) for name in self._needs}
        return {name: value for name, value in known.items() if not np.isnan(value)}

    def _why_worse(
        self, assumed: Mapping[str, float], now: Mapping[str, float], node: str
    ) -> dict[str, str]:
        """One sentence for each value that is worse, by its name."""
        found = {}
        for name, value in now.items():
            was = assumed[name]
            if name == _BANDWIDTH:
                is_worse = value < was * (1 - self._worse_by)
            else:
                is_worse = value > max(was * (1 + self._worse_by), was + _LEAST_RISE[name])
            if is_worse:
                found[name] = f"{name} of {node} is {value:.4g}, and was {was:.4g}"
        return found
