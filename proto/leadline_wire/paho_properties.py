"""Makes paho read MQTT properties that brokers and their clients send.

paho ends the connection over a property that it takes for invalid. With a retained message that
repeats for ever, so one board could keep the controller from its broker. It also takes a second to
read a thousand times more properties than any agent sends. This package does not import paho: agent
and controller hand its module over.
"""

import struct
from functools import lru_cache
from typing import Any

KEEPALIVE_S = 30  # ours
_MOST_BYTES = 1024  # of the properties of a PUBLISH; an agent's have 80
_MOST_PACKET_BYTES = 268_435_455  # the largest limit that paho knows


def mend(paho: Any) -> None:
    """Mend the module paho.mqtt.properties; it uses no private name of it.

    A PUBLISH with properties that are too long or cannot be read arrives without any. A Maximum
    Packet Size may be larger than MQTT's largest packet (NanoMQ's is). A broker can only shorten
    the keep-alive: a longer one, or none, would hide a dead connection.
    """
    properties: Any = paho.Properties
    set_value, unpack = properties.__setattr__, properties.unpack
    if unpack.__module__ == __name__:
        return  # by the other one, in the same process

    def set_mended(self: Any, name: str, value: Any) -> None:
        match name.replace(" ", ""):
            case "MaximumPacketSize":
                value = min(value, _MOST_PACKET_BYTES)
            case "ServerKeepAlive":
                value = min(value or KEEPALIVE_S, KEEPALIVE_S)
        set_value(self, name, value)

    @lru_cache(256)  # agents send the same again and again, and paho takes 35 us to read them
    def read(sent: bytes) -> dict[str, Any]:
        one = properties(paho.PacketTypes.PUBLISH)
        try:
            unpack(one, sent)
        except (struct.error, LookupError, ValueError, paho.MQTTException):
            one.clear()
        found: dict[str, Any] = vars(one)
        return found

    def unpack_mended(self: Any, buffer: bytes) -> tuple[Any, int]:
        if self.packetType != paho.PacketTypes.PUBLISH:
            found: tuple[Any, int] = unpack(self, buffer)
            return found
        length, start = paho.VariableByteIntegers.decode(buffer[:4])
        if length <= _MOST_BYTES:
            vars(self).update(read(bytes(buffer[: start + length])))
        return self, start + length

    properties.__setattr__, properties.unpack = set_mended, unpack_mended
