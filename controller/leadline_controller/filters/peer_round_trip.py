"""PeerRoundTrip: the round trip to a peer must be as short as the pod says
(`leadline.dev/peers: db<5ms`)."""

import numpy as np

from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Pod
from leadline_controller.framework.peers import absent_peers, peers_of, round_trips_ms
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.view import ClusterView

_REQUEUE_ON = ClusterEvent.ASSIGNED_PODS | ClusterEvent.NODES | ClusterEvent.NODE_DELETED


def peer_round_trip(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes whose expected round trip to each such peer is known and short enough. A peer
    that is nowhere yet refuses no node, or two pods that name each other would wait for ever."""
    if all(each.most_rtt_ms is None for each in pod.annotations.peers):
        return FilterResult.all_pass(view)
    needed = [
        (each, most) for each in peers_of(view, pod) if (most := each.most_rtt_ms) is not None
    ]
    rtt_ms = round_trips_ms(view, [peer for peer, _ in needed])
    found = [(*each, column) for each, column in zip(needed, rtt_ms, strict=True)]
    passes = view.table.all()
    for _, most_ms, column in found:
        with np.errstate(invalid="ignore"):
            passes &= column <= most_ms

    def reason(i: int) -> str:
        for peer, most_ms, column in found:
            if np.isnan(column[i]):
                return f"needs {most_ms:g} ms to {peer.name}, the round trip is unknown"
            if column[i] > most_ms:
                return f"needs {most_ms:g} ms to {peer.name}, has {column[i]:.3g}"
        raise IndexError(i)

    nowhere = [each.name for each in absent_peers(view, pod) if each.most_rtt_ms is not None]
    text = f"no round trip to {', '.join(nowhere[:3])}, which has no place yet" if nowhere else ""
    return FilterResult(
        passes,
        reason,
        requeue_on=_REQUEUE_ON,
        caveat=(lambda _: text) if nowhere else None,
    )
