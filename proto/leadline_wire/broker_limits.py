"""What a broker allows on a connection: its CONNACK says so (MQTT 5.0, section 3.2.2.3).

paho hands the properties of a CONNACK over and keeps to none but the keep-alive, so agent and
controller do. Neither uses topic aliases, shared subscriptions or subscription identifiers, each
names itself, and their sessions end with the connection: what a broker says about those does not
matter.
"""

from dataclasses import dataclass, replace

from leadline_wire import codec
from leadline_wire.topics import Delivery

MOST_PACKET_BYTES = 268_435_460  # the largest packet that MQTT can express
# Reason codes with which a broker refuses a connection or a message, or ends a connection.
RECEIVE_MAXIMUM_EXCEEDED, PACKET_TOO_LARGE, QUOTA_EXCEEDED = 0x93, 0x95, 0x97
RETAIN_NOT_SUPPORTED, QOS_NOT_SUPPORTED = 0x9A, 0x9B


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """The defaults are MQTT's."""

    receive_maximum: int = 65_535  # publishes with QoS 1 or 2 that may be unacknowledged
    max_packet_bytes: int = MOST_PACKET_BYTES  # of a whole packet
    max_qos: int = 2
    retains: bool = True
    has_wildcards: bool = True

    @classmethod
    def of(cls, properties: object) -> "BrokerLimits":
        """Of the properties of a CONNACK as paho has them: an attribute for each that was sent."""
        default = MQTT_DEFAULTS
        return cls(
            max(1, getattr(properties, "ReceiveMaximum", default.receive_maximum)),
            getattr(properties, "MaximumPacketSize", default.max_packet_bytes),
            getattr(properties, "MaximumQoS", default.max_qos),
            bool(getattr(properties, "RetainAvailable", default.retains)),
            bool(getattr(properties, "WildcardSubscriptionAvailable", default.has_wildcards)),
        )

    def within(self, other: "BrokerLimits") -> "BrokerLimits":
        """The narrower of both."""
        return replace(
            self,
            receive_maximum=min(self.receive_maximum, other.receive_maximum),
            max_packet_bytes=min(self.max_packet_bytes, other.max_packet_bytes),
            max_qos=min(self.max_qos, other.max_qos),
            retains=self.retains and other.retains,
        )

    def after(self, reason: int, in_flight: int = 0, largest_bytes: int = 0) -> "BrokerLimits":
        """Narrower ones, after a broker ended a connection for this reason code: it need not say
        its limits before it applies them, and learns of a will before it can say them.

        in_flight: publishes that were unacknowledged; largest_bytes: of the largest packet of them.
        """
        if reason == RECEIVE_MAXIMUM_EXCEEDED and in_flight:
            return replace(self, receive_maximum=max(1, in_flight // 2))
        if reason == PACKET_TOO_LARGE and in_flight:
            return replace(self, max_packet_bytes=largest_bytes - 1)
        if reason == RETAIN_NOT_SUPPORTED:
            return replace(self, retains=False)
        if reason == QOS_NOT_SUPPORTED:
            return replace(self, max_qos=0)
        return self

    def delivery(self, how: Delivery) -> Delivery:
        """How a message can be published that would be published so."""
        return replace(how, qos=min(how.qos, self.max_qos), retain=how.retain and self.retains)

    def shortcomings(self) -> tuple[str, ...]:
        """What does not work as it would with another broker, each a phrase."""
        found = {
            "it takes QoS 0 only, so messages under way are lost when a connection breaks": (
                self.max_qos == 0
            ),
            "it retains nothing, so boards are known only when agents repeat their births, once a "
            "minute": not self.retains,
            f"it takes packets of {self.max_packet_bytes} bytes at most, so larger messages are "
            "dropped": self.max_packet_bytes < codec.MAX_BYTES,
            "it takes no wildcards in subscriptions, so nothing is heard of the boards": (
                not self.has_wildcards
            ),
        }
        return tuple(text for text, holds in found.items() if holds)


MQTT_DEFAULTS = BrokerLimits()


def publish_bytes(topic: str, payload: bytes, how: Delivery, properties: bytes) -> int:
    """The size of a PUBLISH packet. properties: encoded, with their length."""
    rest = 2 + len(topic.encode()) + (2 if how.qos else 0) + len(properties) + len(payload)
    # A length has seven bits in each of its bytes.
    return 1 + max(1, -(-rest.bit_length() // 7)) + rest
