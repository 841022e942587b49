"""Publishing: the only room that knows the wire and MQTT."""

from leadline_agent.publish.certificate import read as read_certificate
from leadline_agent.publish.connection import Endpoint, Event, MessageReceived, tls_context
from leadline_agent.publish.forget import ForgetError, forget
from leadline_agent.publish.identity import StateError
from leadline_agent.publish.session import Session

__all__ = [
    "Endpoint",
    "Event",
    "ForgetError",
    "MessageReceived",
    "Session",
    "StateError",
    "forget",
    "read_certificate",
    "tls_context",
]
