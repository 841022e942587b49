"""Publishing: the only room that knows the wire and MQTT."""

from leadline_agent.publish.connection import Endpoint, Event, tls_context
from leadline_agent.publish.identity import StateError
from leadline_agent.publish.session import Session

__all__ = ["Endpoint", "Event", "Session", "StateError", "tls_context"]
