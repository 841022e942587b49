"""The MQTT topic scheme: names, QoS, retain and expiry stand here and nowhere else.

`leadline/v1/<cluster>/<node>/<kind>`; everything goes from the node to the controller
but `lease`, which goes the other way.
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
    STATUS = "status"
    LEASE = "lease"


@dataclass(frozen=True, slots=True)
class Delivery:
    """How a kind of message travels. `expiry_s` is the MQTT v5 message expiry interval."""

    qos: int
    retain: bool
    expiry_s: int | None = None


# A broker counts the expiry interval down while it holds a message, so the receiver
# learns how long that was: it is part of the age of what was measured.
DELIVERY = {
    Kind.BIRTH: Delivery(qos=1, retain=True),
    Kind.REPORT: Delivery(qos=1, retain=False, expiry_s=3600),
    Kind.RTT: Delivery(qos=1, retain=False, expiry_s=3600),
    Kind.BANDWIDTH: Delivery(qos=1, retain=False, expiry_s=3600),
    Kind.STATUS: Delivery(qos=1, retain=True),
    # A lease that waited for its node would load the network at a time nobody chose.
    Kind.LEASE: Delivery(qos=1, retain=False, expiry_s=5),
}


class TopicError(ValueError):
    """A topic, cluster or node name that the scheme does not allow."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One parsed topic."""

    cluster: str
    node: str
    kind: Kind

    def __str__(self) -> str:
        return f"{ROOT}/{self.cluster}/{self.node}/{self.kind}"


def check_level(name: str, what: str) -> str:
    """Return `name` if it can be a topic level (as Kubernetes' names), else raise TopicError."""
    if not _LEVEL.fullmatch(name):
        raise TopicError(f"{what} {name!r}: expected letters, digits, '-' and '.', 253 at most")
    return name


def topic(cluster: str, node: str, kind: Kind) -> str:
    """The topic of one kind of message of one node. Raises TopicError."""
    check_level(cluster, "cluster")
    return f"{ROOT}/{cluster}/{check_level(node, 'node')}/{kind}"


def subscription(cluster: str, kind: Kind) -> str:
    """The filter that matches this kind of message of every node. Raises TopicError."""
    return f"{ROOT}/{check_level(cluster, 'cluster')}/+/{kind}"


def parse(text: str) -> Topic:
    """Take a topic apart. Raises TopicError."""
    levels = text.split("/")
    if len(levels) != 5 or levels[0] != "leadline" or levels[1] != "v1":
        raise TopicError(f"topic {text[:80]!r}: expected {ROOT}/<cluster>/<node>/<kind>")
    try:
        kind = Kind(levels[4])
    except ValueError:
        raise TopicError(f"topic {text[:80]!r}: unknown kind of message") from None
    return Topic(check_level(levels[2], "cluster"), check_level(levels[3], "node"), kind)
