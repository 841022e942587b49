import pytest
from leadline_controller.framework.model import HostPort, Taint, Toleration

TAINT = Taint("dedicated", "db", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        (Toleration("dedicated", "Equal", "db", "NoSchedule"), True),
        (Toleration("dedicated", "Equal", "db", ""), True),
        (Toleration("dedicated", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("", "Exists", effect="NoSchedule"), True),
        (Toleration("dedicated", "Equal", "web"), False),
        (Toleration("dedicated", "Equal"), False),
        (Toleration("other", "Exists"), False),
        (Toleration("", "Exists", effect="NoExecute"), False),
        (Toleration("dedicated", "Equal", "db", "NoExecute"), False),
        (Toleration("", "Equal", "db"), False),
        (Toleration("dedicated", "Matches", "db"), False),
    ],
)
def test_a_toleration_matches_key_value_and_effect(toleration: Toleration, tolerates: bool) -> None:
    assert toleration.tolerates(TAINT) is tolerates


@pytest.mark.parametrize(
    ("a", "b", "collide"),
    [
        (("0.0.0.0", "TCP", 80), ("0.0.0.0", "TCP", 80), True),
        (("0.0.0.0", "TCP", 80), ("10.0.0.1", "TCP", 80), True),
        (("10.0.0.1", "TCP", 80), ("10.0.0.1", "TCP", 80), True),
        (("10.0.0.1", "TCP", 80), ("10.0.0.2", "TCP", 80), False),
        (("0.0.0.0", "TCP", 80), ("0.0.0.0", "UDP", 80), False),
        (("0.0.0.0", "TCP", 80), ("0.0.0.0", "TCP", 81), False),
    ],
)
def test_host_ports_conflict_by_address_protocol_and_port(
    a: tuple[str, str, int], b: tuple[str, str, int], collide: bool
) -> None:
    assert HostPort(*a).conflicts_with(HostPort(*b)) is collide
    assert HostPort(*b).conflicts_with(HostPort(*a)) is collide
