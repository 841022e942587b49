"""Specifications of labs: the default, users' files, and every invalid value."""

import json
from pathlib import Path
from typing import Any

import pytest
from leadline_lab.errors import SpecError
from leadline_lab.spec import BoardSpec, LabSpec, load_spec, parse_spec


def test_the_default_is_netscheds_test_bed() -> None:
    spec = LabSpec()
    assert [board.rate_mbps for board in spec.boards] == [4, 4, 4, 100]
    assert [host.name for host in spec.hosts] == ["n1", "n2", "n3", "n4", "server"]
    assert parse_spec({}) == spec


def test_addresses_and_namespaces() -> None:
    spec = parse_spec({"name": "lab7", "subnet": "192.168.9.0/29"})
    assert [spec.address(host.name) for host in spec.hosts] == [
        *("192.168.9.1", "192.168.9.2", "192.168.9.3", "192.168.9.4"),
        "192.168.9.6",
    ]
    assert spec.namespace("n2") == "leadline-lab7-n2"
    assert spec.namespace("switch") == "leadline-lab7-switch"
    with pytest.raises(SpecError, match="has no host n9; it has n1, n2, n3, n4, server"):
        spec.address("n9")


def test_a_users_file(tmp_path: Path) -> None:
    path = tmp_path / "lab.toml"
    path.write_text(
        'name = "attic"\n'
        '[[boards]]\nname = "pi-a"\nrate_mbps = 2.5\ndelay_ms = 40\n'
        '[[boards]]\nname = "pi-b"\n'
    )
    spec = load_spec(path)
    assert spec.boards == (BoardSpec("pi-a", 2.5, 40.0), BoardSpec("pi-b", None, 0.0))


def test_the_plain_form_round_trips_through_json() -> None:
    spec = LabSpec("x", boards=(BoardSpec("a", 4, 10), BoardSpec("b"), BoardSpec("c", 4, 0, 100)))
    assert parse_spec(json.loads(json.dumps(spec.to_mapping()))) == spec


@pytest.mark.parametrize(
    ("rate_mbps", "link_mbps", "speed_mbps"),
    [
        (None, None, None),
        (0.5, None, 10),
        (10, None, 10),
        (95.5, None, 100),
        (1000, None, 1000),
        (1001, None, 2500),
        (10_000, None, 10_000),
        (4, 100, 100),
        (None, 1000, 1000),
    ],
)
def test_an_interface_states_the_first_speed_of_ethernet_that_the_rate_fits_in(
    rate_mbps: float | None, link_mbps: float | None, speed_mbps: int | None
) -> None:
    assert BoardSpec("a", rate_mbps, link_mbps=link_mbps).speed_mbps == speed_mbps


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"name": "my-lab"}, "name: expected 1-20 of a-z and 0-9, got text 'my-lab'"),
        ({"name": "../etc"}, "name: expected"),
        ({"name": 3}, "name: expected text, got 3"),
        ({"nodes": []}, "nodes: unknown field; known: name, subnet, boards"),
        ({"subnet": "10.77.0.0/33"}, "subnet: expected a private IPv4 range"),
        ({"subnet": "10.77.0.1/24"}, "subnet: expected"),
        ({"subnet": "8.8.8.0/24"}, "subnet: expected"),
        ({"subnet": "127.0.0.0/24"}, "subnet: expected"),
        ({"subnet": 10}, "subnet: expected"),
        ({"subnet": "10.0.0.0/30"}, "subnet: 10.0.0.0/30 is too small for 4 boards"),
        ({"boards": []}, "boards: expected a list"),
        ({"boards": {"name": "n1"}}, "boards: expected a list"),
        ({"boards": ["n1"]}, r"boards\[0\]: expected an object, got text 'n1'"),
        ({"boards": [{}]}, r"boards\[0\].name: expected"),
        ({"boards": [{"name": "N1"}]}, r"boards\[0\].name: expected .* got text 'N1'"),
        ({"boards": [{"name": "server"}]}, "server is taken by the lab itself"),
        ({"boards": [{"name": "switch"}]}, "switch is taken by the lab itself"),
        ({"boards": [{"name": "a"}, {"name": "a"}]}, "a is there more than once"),
        ({"boards": [{"name": "a", "speed": 1}]}, r"boards\[0\].speed: unknown field"),
        ({"boards": [{"name": "a", "rate_mbps": 0}]}, "rate_mbps: expected a number from 0.1"),
        ({"boards": [{"name": "a", "rate_mbps": True}]}, "rate_mbps: expected a number"),
        ({"boards": [{"name": "a", "rate_mbps": "4"}]}, "rate_mbps: expected .* got text '4'"),
        ({"boards": [{"name": "a", "rate_mbps": float("nan")}]}, "rate_mbps: expected"),
        (
            {"boards": [{"name": "a", "rate_mbps": 200, "link_mbps": 100}]},
            r"boards\[0\].link_mbps: expected a number from 200 to 10000, got 100",
        ),
        ({"boards": [{"name": "a", "link_mbps": 0}]}, "link_mbps: expected a number from 1 to"),
        ({"boards": [{"name": "a", "delay_ms": -1}]}, "delay_ms: expected a finite number of 0 to"),
        ({"boards": [{"name": "a", "delay_ms": float("inf")}]}, "delay_ms: expected"),
    ],
)
def test_an_invalid_value_is_named(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint) as caught:
        parse_spec(given, "lab.toml")
    assert str(caught.value).startswith("lab.toml: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"name = ", b"\xff\xfe"])
def test_a_file_that_is_not_toml(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lab.toml"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=r"lab\.toml: is not TOML"):
        load_spec(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read: No such file"):
        load_spec(tmp_path / "none.toml")
