"""Publishing: the only room that knows the wire and MQTT."""

from leadline_agent.publish.certificate import read as read_certificate
from leadline_agent.publish.connection import Arrived, Endpoint, Event, tls_context
from leadline_agent.publish.forget import ForgetError, forget
from leadline_agent.publish.identity import StateError
from leadline_agent.publish.session import Session

__all__ = [
    "Arrived",
    "Endpoint",
    "Event",
    "ForgetError",
    "Session",
    "StateError",
    "forget",
    "read_certificate",
    "tls_context",
]
