"""Collector `network`."""

from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_controller.telemetry.collectors.decoder import BoardReading, decodes


@decodes("packets_sent_per_s", "packets_received_per_s", "link_mbps", "used_mbps")
def decode_network(report: pb.Report, reading: BoardReading) -> None:
    """Packets per second of all interfaces; unknown when one of them is unknown. Speed and traffic
    of the fastest interface, Mbit/s; traffic is that of its busier direction."""
    interfaces = report.network
    if not interfaces:
        return
    sent = received = 0.0
    knows_sent = knows_received = True
    for interface in interfaces:
        knows_sent = knows_sent and interface.HasField("packets_sent_per_s")
        knows_received = knows_received and interface.HasField("packets_received_per_s")
        sent += interface.packets_sent_per_s
        received += interface.packets_received_per_s
    if knows_sent:
        reading.values["packets_sent_per_s"] = sent
    if knows_received:
        reading.values["packets_received_per_s"] = received
    fastest = max(interfaces, key=lambda each: each.link_mbps)
    if fastest.link_mbps:
        reading.values["link_mbps"] = float(fastest.link_mbps)
    if fastest.HasField("bytes_sent_per_s") and fastest.HasField("bytes_received_per_s"):
        used = max(fastest.bytes_sent_per_s, fastest.bytes_received_per_s)
        reading.values["used_mbps"] = used * 8e-6
