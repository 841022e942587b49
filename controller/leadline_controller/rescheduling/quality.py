"""Whether what was measured suffices to move a pod. A move costs something, so it needs more than a
first placement: nothing moves on values that are old, doubted, or guessed with a wide error."""

from collections.abc import Callable, Mapping
from functools import cache, partial

from leadline_controller.framework.model import Pod
from leadline_controller.framework.peers import main_peer
from leadline_controller.framework.view import ClusterView
from leadline_controller.telemetry.link_bandwidth import TESTS
from leadline_controller.telemetry.link_status import UNREACHABLE, LinkStatus
from leadline_controller.telemetry.state import TelemetryState

# A value in the second half of its time to live is stale, as for links.
_FRESH_SHARE = 0.5
# An estimate may be off by so much of itself.
_WIDEST_ERROR = 0.25
# Of a main peer with pods on many nodes, those with the most of them.
_MOST_PLACES = 4
_OF_LINKS = ("rtt_ms", "bandwidth_mbps")


def why_unreliable(
    telemetry: TelemetryState,
    view: ClusterView,
    needs: tuple[str, ...],
    now_s: float,
    *,
    peer_is_user: bool = False,
) -> Callable[[Pod, str, str], str]:
    """A function of a pod, its node and its target: why the measurements that its strategy needs do
    not suffice to move it, empty if they do. peer_is_user: whether the strategy takes the pod's
    main peer as its user. What was found of a node and of a user's links is kept."""

    def users(pod: Pod) -> list[str]:
        user = pod.annotations.user_node
        if user is not None or not peer_is_user:
            return [] if user is None else [user]
        peer = main_peer(view, pod)
        nodes = [] if peer is None else peer.nodes[:_MOST_PLACES].tolist()
        return [view.table.names[at] for at in nodes]

    of_node = cache(partial(_of_node, telemetry, view, needs, now_s))

    @cache
    def links_of(user: str) -> Mapping[str, LinkStatus]:
        found = telemetry.links(now_s, (user,), user)
        return {each.b if each.a == user else each.a: each for each in found}

    def why(pod: Pod, source: str, target: str) -> str:
        of_pod = users(pod) if "rtt_ms" in needs else []
        for node in (source, target):
            if reason := of_node(node, node == source):
                return reason
            for user in of_pod:
                link = links_of(user).get(node) or LinkStatus(user, node)
                if user != node and (reason := _round_trip(link, user, node, now_s)):
                    return reason
        return ""

    return why


def _of_node(
    telemetry: TelemetryState,
    view: ClusterView,
    needs: tuple[str, ...],
    now_s: float,
    node: str,
    is_source: bool,
) -> str:
    if "bandwidth_mbps" in needs and (
        reason := _bandwidth(telemetry, view, node, now_s, is_source=is_source)
    ):
        return reason
    age_s = telemetry.board(node, now_s).age_s
    if any(name not in _OF_LINKS for name in needs) and (
        age_s is None or age_s > _FRESH_SHARE * telemetry.ttl.report_s
    ):
        return f"the last report of {node} is old"
    return ""


def _bandwidth(
    telemetry: TelemetryState, view: ClusterView, node: str, now_s: float, *, is_source: bool
) -> str:
    if view.nodes[view.table.index[node]].bandwidth_mbps is not None:
        return ""  # stated
    known = telemetry.node_links([node], now_s)[0].bandwidth
    if known is None:
        return f"the bandwidth of {node} is unknown"
    if now_s - known.at_s > _FRESH_SHARE * telemetry.ttl.bandwidth_s:
        return f"the bandwidth of {node} was measured {now_s - known.at_s:.0f} s ago"
    if known.is_suspect:
        return f"one test contradicts the bandwidth of {node}, and another one is to decide"
    if known.is_host_limited:
        return f"the bandwidth of {node} was limited by a board and not by its link"
    if known.source != TESTS:
        return f"the bandwidth of {node} is from its {known.source} and not from a test"
    if is_source and known.lower_bound:
        return f"the link of {node} may do more than was measured"
    return ""


def _round_trip(link: LinkStatus, user: str, node: str, now_s: float) -> str:
    pair = f"the round trip of {user} and {node}"
    if link.rtt_source == UNREACHABLE:
        return f"{node} does not answer {user}"
    if link.rtt_ms is None:
        return f"{pair} is unknown"
    if link.rtt_source == "stale":
        return f"{pair} was measured {now_s - link.rtt_at_s:.0f} s ago"
    if link.flapping:
        return f"{pair} keeps changing"
    if link.rtt_source == "measured":
        return ""
    error_ms = link.rtt_error_ms
    if error_ms is None or error_ms > _WIDEST_ERROR * link.rtt_ms:
        within = "by an unknown error" if error_ms is None else f"within {error_ms:.3g} ms"
        return f"{pair} is estimated as {link.rtt_ms:.3g} ms {within}"
    return ""
