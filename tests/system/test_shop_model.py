from __future__ import annotations

import pytest

from tests.system.shop_model import (
    MIX,
    NETWORKS,
    SHOP,
    USER,
    Network,
    expected_ms,
    flows,
    mean_ms,
    mean_of_random_ms,
    percentile,
    promising,
    random_placements,
)

HERE = dict.fromkeys(SHOP, "n1")


def test_on_one_board_a_request_takes_what_services_wait_and_the_users_transfer() -> None:
    network = NETWORKS["alike"]
    waits_ms = 2 + 1 + 3 * 1
    assert expected_ms(network, HERE, "browse") == pytest.approx(waits_ms + 30 * 8 / 100)


def test_each_call_to_another_board_costs_its_round_trip_and_its_bytes() -> None:
    network = Network("two", {"n1": 100.0, "n2": 10.0}, {"n2": 7.0})
    apart = {**HERE, "catalogue-db": "n2"}
    more_ms = expected_ms(network, apart, "browse") - expected_ms(network, HERE, "browse")
    assert more_ms == pytest.approx(3 * (7.0 + 8 * 8 / 10))


def test_the_trunk_is_between_the_switches_only() -> None:
    halls = NETWORKS["halls"]
    assert halls.rtt_ms("n3", "n4") == halls.rtt_ms("n1", "n2") == 0.0
    assert halls.rtt_ms("n1", "n3") == halls.rtt_ms(USER, "n3") == 8.0
    assert (halls.mbps("n3", "n4"), halls.mbps(USER, "n4")) == (100.0, 20.0)


def test_every_service_is_called_and_the_front_by_users_alone() -> None:
    calls = flows(10.0)
    assert {to for _, to in calls} == SHOP.keys()
    assert [caller for caller, to in calls if to == "front"] == [USER]
    assert calls[USER, "front"][0] == pytest.approx(10.0)
    assert calls["catalogue", "catalogue-db"][0] == pytest.approx(10 * (3 * 0.6 + 0.3))
    assert sum(MIX.values()) == pytest.approx(1.0)


def test_placements_by_chance_keep_to_the_boards_room() -> None:
    for placed in random_placements(NETWORKS["home"], 4, 50, seed=1):
        assert placed.keys() == SHOP.keys()
        assert max(list(placed.values()).count(board) for board in placed.values()) <= 4


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "alike"])
def test_the_best_of_many_is_much_better_than_chance(name: str) -> None:
    network = NETWORKS[name]
    best = promising(network, 4, 2000, 20, seed=1)
    assert len(best) == 20
    assert mean_ms(network, best[0]) < 0.8 * mean_of_random_ms(network, 4)


def test_where_all_are_alike_chance_is_as_good() -> None:
    network = NETWORKS["alike"]
    best = promising(network, 4, 2000, 1, seed=1)[0]
    assert mean_ms(network, best) > 0.8 * mean_of_random_ms(network, 4)


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([3.0, 1.0, 2.0, 4.0], 0.5) == 3.0
    assert percentile([5.0], 0.95) == 5.0
