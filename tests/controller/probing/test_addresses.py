from ipaddress import ip_network

import pytest
from leadline_controller.framework.model import Node
from leadline_controller.kubeobjects.manifest import read_node
from leadline_controller.parsing.addresses import read_unicast
from leadline_controller.probing.addresses import AddressPolicy

NODE = Node("pi-1", addresses=("10.0.0.5", "fd00::5"))


@pytest.mark.parametrize("text", ["10.0.0.5", "127.0.0.11", "169.254.3.4", "fd00::5", "::1"])
def test_an_address_of_one_machine(text: str) -> None:
    assert str(read_unicast(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "pi-1", "10.0.0", "10.0.0.5 ", "10.0.0.5/24", "10.0.0.5:80", "[fd00::5]", "-c"),
        *("0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "240.0.0.1"),
        *("fe80::1%eth0", "fd00::5%;reboot", "::ffff:10.0.0.5"),
    ],
)
def test_an_address_of_many_machines_is_refused(text: str) -> None:
    assert read_unicast(text) is None


@pytest.mark.parametrize("claimed", ["10.0.0.5", "fd00::5", "fd00:0:0::05"])
def test_an_address_of_the_node_object_is_probed(claimed: str) -> None:
    assert AddressPolicy().refusal(claimed, NODE) is None


@pytest.mark.parametrize("claimed", ["10.0.0.6", "203.0.113.9", "::ffff:10.0.0.5", "pi-1", ""])
def test_another_address_is_not_probed(claimed: str) -> None:
    reason = AddressPolicy().refusal(claimed, NODE)
    assert reason is not None
    assert "\n" not in reason


def test_the_reason_names_what_was_expected() -> None:
    reason = AddressPolicy().refusal("203.0.113.9", NODE)
    assert reason == (
        "its agent's address 203.0.113.9 is neither an address of the node object "
        "(10.0.0.5, fd00::5) nor in probe.networks"
    )


@pytest.mark.parametrize(
    ("claimed", "probed"),
    [
        ("192.168.7.1", True),
        ("192.168.7.254", True),
        ("192.168.7.0", False),  # both reach all machines there
        ("192.168.7.255", False),
        ("192.168.8.1", False),
        ("fd01::", True),
        ("fd02::1", False),
        ("10.9.9.9", True),
        ("10.9.9.8", False),
    ],
)
def test_an_address_in_a_configured_network_is_probed(claimed: str, probed: bool) -> None:
    networks = tuple(map(ip_network, ("192.168.7.0/24", "fd01::/64", "10.9.9.9/32")))
    assert (AddressPolicy(networks).refusal(claimed, NODE) is None) == probed


def test_a_nodes_addresses_come_from_its_object() -> None:
    told = [
        {"type": "Hostname", "address": "10.0.0.1"},
        {"type": "InternalIP", "address": "10.0.0.2"},
        {"type": "InternalIP", "address": "FD00::0:2"},
        {"type": "ExternalIP", "address": "198.51.100.7"},
        {"type": "InternalDNS", "address": "pi-1.lan"},
        {"type": "InternalIP", "address": "nonsense"},
        {"type": "InternalIP", "address": "224.0.0.1"},
    ]
    manifest = {"metadata": {"name": "pi-1"}, "status": {"addresses": told}}
    assert read_node(manifest).addresses == ("10.0.0.2", "fd00::2", "198.51.100.7")
