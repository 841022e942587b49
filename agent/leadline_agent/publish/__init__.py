"""Publishing over MQTT: session, buffer and encoding. What is measured belongs elsewhere."""

from leadline_agent.publish.certificate import read as read_certificate
from leadline_agent.publish.connection import Endpoint, Event, MessageReceived, tls_context
from leadline_agent.publish.identity import StateError
from leadline_agent.publish.session import ForgetError, Session, forget

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
