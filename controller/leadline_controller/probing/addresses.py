"""Which addresses agents may probe.

An agent's birth says where peers reach it. Without a check, one dishonest board could direct
bandwidth tests at any machine. So an address is used only when the Kubernetes node object has it,
or when it is in a network that the user configured.
"""

from dataclasses import dataclass

from leadline_controller.framework.model import Node
from leadline_controller.parsing.addresses import Address, Network, read_unicast

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """The check."""

    networks: tuple[Network, ...] = ()  # allowed in addition to the addresses of the node objects

    def refusal(self, claimed: str, node: Node) -> str | None:
        """Why the claimed address of a node's agent is not probed; None if it is allowed."""
        if claimed in node.addresses:  # the usual case, checked twice a second for each node
            return None
        address = read_unicast(claimed)
        if address is None:
            return f"its agent's address {claimed[:60]!r} is no unicast IP address"
        if str(address) in node.addresses or any(_is_host(address, n) for n in self.networks):
            return None
        known = ", ".join(node.addresses[:_SHOWN]) or "none"
        return (
            f"its agent's address {address} is neither an address of the node object ({known}) "
            "nor in probe.networks"
        )


def _is_host(address: Address, network: Network) -> bool:
    if address not in network:
        return False
    # The first and last address of an IPv4 network are broadcast addresses.
    ends = (network.network_address, network.broadcast_address)
    return network.num_addresses <= 2 or address.version == 6 or address not in ends
