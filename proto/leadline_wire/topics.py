"""The MQTT topic scheme `leadline/v1/<cluster>/<node>/<kind>`, with QoS, retain and expiry.

Nodes publish all kinds but `lease`, which the controller publishes.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

ROOT = "leadline/v1"
SCHEMA = "leadline.v1"
SCHEMA_PROPERTY = "schema"
CONTENT_TYPE = "application/protobuf"
_LEVEL = re.compile(r"[a-zA-Z0-9](?:[-a-zA-Z0-9.]{0,251}[a-zA-Z0-9])?")


class Kind(StrEnum):
    """The last level of a topic: what the message is."""

    BIRTH = "birth"
    REPORT = "report"
    RTT = "rtt"
    BANDWIDTH = "bandwidth"
    TRAFFIC = "traffic"
    STATUS = "status"
    LEASE = "lease"


@dataclass(frozen=True, slots=True)
class Delivery:
    """How a kind of message is published. `expiry_s` is the MQTT v5 message expiry interval."""

    qos: int
    retain: bool
    expiry_s: int | None = None


# A broker decreases the expiry interval by the time for which it holds a message, so the receiver
# knows this part of the age of a measurement.
DELIVERY = {
    Kind.BIRTH: Delivery(qos=1, retain=True),
    Kind.REPORT: Delivery(qos=1, retain=False, expiry_s=3600),
    Kind.RTT: Delivery(qos=1, retain=False, expiry_s=3600),
    Kind.BANDWIDTH: Delivery(qos=1, retain=False, expiry_s=3600),
    Kind.TRAFFIC: Delivery(qos=1, retain=False, expiry_s=3600),
    Kind.STATUS: Delivery(qos=1, retain=True),
    # A lease that is delivered late would load the network at an unplanned time. With QoS 1 the
    # sender sends leases again after it reconnects, and all of them start then.
    Kind.LEASE: Delivery(qos=0, retain=False, expiry_s=5),
}


class TopicError(ValueError):
    """An invalid topic, cluster or node name."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A parsed topic."""

    cluster: str
    node: str
    kind: Kind

    def __str__(self) -> str:
        return f"{ROOT}/{self.cluster}/{self.node}/{self.kind}"


def check_level(name: str, what: str) -> str:
    """Return `name` if it can be a topic level, as Kubernetes names can. Raises TopicError."""
    if not _LEVEL.fullmatch(name):
        raise TopicError(f"{what} {name!r}: expected letters, digits, '-' and '.', 253 at most")
    return name


def topic(cluster: str, node: str, kind: Kind) -> str:
    """The topic for one kind of message of one node. Raises TopicError."""
    check_level(cluster, "cluster")
    return f"{ROOT}/{cluster}/{check_level(node, 'node')}/{kind}"


def subscription(cluster: str, kind: Kind) -> str:
    """The topic filter for one kind of message of all nodes. Raises TopicError."""
    return f"{ROOT}/{check_level(cluster, 'cluster')}/+/{kind}"


def parse(text: str) -> Topic:
    """Parse a topic. Raises TopicError."""
    levels = text.split("/")
    if len(levels) != 5 or levels[0] != "leadline" or levels[1] != "v1":
        raise TopicError(f"topic {text[:80]!r}: expected {ROOT}/<cluster>/<node>/<kind>")
    try:
        kind = Kind(levels[4])
    except ValueError:
        raise TopicError(f"topic {text[:80]!r}: unknown kind of message") from None
    return Topic(check_level(levels[2], "cluster"), check_level(levels[3], "node"), kind)
