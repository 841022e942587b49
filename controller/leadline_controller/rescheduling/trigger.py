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
# An update or a backup keeps a board busy for minutes, and a pod that fled it would gain little.
# So its CPU must be busier for so many times as long as the others must be worse: of the default of
# 5 minutes that makes the 15 over which Trimaran (Kubernetes' scheduler-plugins) takes load.
_PATIENCE = {"cpu_percent": 3.0}


@dataclass(frozen=True, slots=True)
class Worse:
    """A placement that is worse than assumed."""

    pod: Pod
    node: str
    since_s: float  # on the clock of the views
    why: str  # one sentence
    patience: float = 1.0  # how many times as long as others it must stay worse


@dataclass(slots=True)
class _Placement:
    node: str
    assumed: dict[str, float] = field(default_factory=dict)
    # Since when each of what was measured has been worse without a break.
    worse_since_s: dict[str, float] = field(default_factory=dict)


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
        """The placements that are worse than assumed now, and since when without a break.
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
            if why:
                each = (
                    Worse(pod, node, since_s, why[name], _PATIENCE.get(name, 1.0))
                    for name, since_s in placement.worse_since_s.items()
                )
                found.append(max(each, key=lambda worse: (now_s - worse.since_s) / worse.patience))
        self._placements = kept
        return found

    def look_again(self, uid: str, now_s: float) -> None:
        """A plan was made for this pod: only if it stays worse as long again, another one is."""
        if uid in self._placements:
            since_s = self._placements[uid].worse_since_s
            since_s.update(dict.fromkeys(since_s, now_s))

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
