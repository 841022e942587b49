"""Which addresses the controller may send its agents to.

An agent says in its birth where peers reach it. Believed without a check, one dishonest board
could send bandwidth tests to any machine. So an address is used only when the Kubernetes node
object of that board has it, or when it lies in a network that the user configured.
"""

from dataclasses import dataclass

from leadline_controller.framework.model import Node
from leadline_controller.parsing.addresses import Address, Network, read_unicast

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Addressing:
    """The rule. networks: where agents may be reached beside their node objects' addresses."""

    networks: tuple[Network, ...] = ()

    def refusal(self, claimed: str, node: Node) -> str | None:
        """Why a board of this node is not probed at the address that it claims; None if it is."""
        if claimed in node.addresses:  # as nearly all are, and each is asked twice a second
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
    # The first and the last address of an IPv4 network reach all of its machines.
    ends = (network.network_address, network.broadcast_address)
    return network.num_addresses <= 2 or address.version == 6 or address not in ends
