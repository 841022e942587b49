"""Taking back what the broker keeps of this node, when it goes for good.

A birth and a status stay at the broker until somebody clears them, and only this node's own
certificate may write them. So the board does it itself, before it loses its certificate.
"""

import time
from queue import Empty, SimpleQueue

from leadline_wire import topics

from leadline_agent.publish.connection import (
    Acknowledged,
    Connected,
    Disconnected,
    Endpoint,
    Event,
    PahoConnection,
)
from leadline_agent.publish.session import explain_failure

TIMEOUT_S = 15.0


class ForgetError(Exception):
    """The broker could not be reached or would not forget; str() says why."""


def forget(endpoint: Endpoint, cluster: str, node: str, timeout_s: float = TIMEOUT_S) -> None:
    """Clear whatever this node has retained at the broker. Raises ForgetError.

    The agent must not run: it would say it all again with its next connection.
    """
    retained = [kind for kind, how in topics.DELIVERY.items() if how.retain]
    inbox: SimpleQueue[Event] = SimpleQueue()
    client_id = f"leadline-{cluster}-{node}-forget"
    connection = PahoConnection(0, endpoint, client_id, None, None, inbox.put)
    until_s = time.monotonic() + timeout_s
    try:
        _await(inbox, Connected, endpoint, node, until_s)
        for kind in retained:
            connection.publish(topics.topic(cluster, node, kind), b"")
        for _ in retained:
            _await(inbox, Acknowledged, endpoint, node, until_s)
    finally:
        connection.close()


def _await(
    inbox: SimpleQueue[Event],
    wanted: type[Connected | Acknowledged],
    endpoint: Endpoint,
    node: str,
    until_s: float,
) -> None:
    while True:
        try:
            event = inbox.get(timeout=max(0.0, until_s - time.monotonic()))
        except Empty:
            raise ForgetError(f"broker {endpoint}: no answer in time; try again") from None
        if isinstance(event, Disconnected) or (isinstance(event, Acknowledged) and event.refusal):
            raise ForgetError(
                f"broker {endpoint}: {explain_failure(event, endpoint.certificate, node)}"
            )
        if isinstance(event, wanted):
            return
