"""What is published when: the same tests with a broker in memory and a real mosquitto."""

from collections.abc import Iterator

import pytest
from leadline_controller.framework.model import Node
from leadline_controller.framework.ports import NodeDeleted, PodChanged, Relisted
from leadline_controller.homeassistant.messages import PublishSettings

from tests.controller.homeassistant.home import ENTITIES, ON, ROOT, TOPICS, Home
from tests.controller.homeassistant.state_brokers import MemoryBroker, StateBroker, mosquitto_broker
from tests.controller.inspect.harness import ControllerHarness, pod

OFF = PublishSettings()


@pytest.fixture(params=["memory", pytest.param("mosquitto", marks=pytest.mark.broker)])
def broker(request: pytest.FixtureRequest) -> Iterator[StateBroker]:
    if request.param == "memory":
        yield MemoryBroker()
    else:
        with mosquitto_broker() as broker:
            yield broker


def test_a_board_is_discovered_and_its_state_is_there(broker: StateBroker) -> None:
    home = Home(broker, "pi-1", "pi-2")
    home.hear("pi-1")
    home.report("pi-1", 48.31, throttled=False, under_voltage=True)
    home.world.cluster.apply(PodChanged(pod("web", node_name="pi-1")))
    home.run(home.start())
    home.wait_discovered("pi-1")
    home.wait_discovered("pi-2")
    broker.wait(lambda: home.said_of_controller() == b"online", "the controller is online")
    broker.wait(lambda: home.state("pi-1") and home.state("pi-2"), "both states")
    assert home.state("pi-1") == {
        "online": True,
        "agent": "online",
        "temperature_celsius": 48.3,
        "throttled": False,
        "under_voltage": True,
        "bandwidth_mbps": None,
        "bandwidth_is_lower_bound": None,
        "pods": 1,
    }
    assert home.state("pi-2") == dict.fromkeys(home.state("pi-1")) | {"agent": "unknown", "pods": 0}


def test_without_the_setting_nothing_is_published(broker: StateBroker) -> None:
    home = Home(broker, "pi-1")
    home.run(home.start(OFF), for_s=70)
    # What an earlier run may have left is removed.
    broker.wait(lambda: f"{ROOT}/controller" in broker.seen, "the controller's state is cleared")
    broker.say("end", b"x")
    assert set(broker.seen) == {"end", f"{ROOT}/controller"}
    assert broker.retained.keys() <= {"end"}


def test_a_standby_publishes_nothing_until_it_leads(broker: StateBroker) -> None:
    home = Home(broker, "pi-1")
    standby = home.start()
    standby.leads = False
    home.run(standby, for_s=70)
    broker.say("end", b"x")
    assert set(broker.seen) == {"end"}
    standby.leads = True
    home.run(standby)
    home.wait_discovered("pi-1")


def test_a_state_is_published_when_it_changes_and_at_most_every_interval(
    broker: StateBroker,
) -> None:
    home = Home(broker, "pi-1")
    home.hear("pi-1")
    home.report("pi-1", 40.0)
    controller, topic = home.start(), f"{ROOT}/boards/pi-1"
    home.run(controller, for_s=3)
    broker.wait(lambda: broker.seen[topic] == 1, "the first state")
    home.report("pi-1", 41.0)
    home.run(controller, for_s=28)
    home.report("pi-1", 42.0)
    home.run(controller, for_s=3)
    broker.wait(lambda: home.state("pi-1").get("temperature_celsius") == 42, "the newest")
    assert broker.seen[topic] == 2
    for _ in range(6):  # no change, but the same reports
        home.report("pi-1", 42.0)
        home.run(controller, for_s=20)
    broker.wait(lambda: broker.seen[topic] == 3, "a state is repeated before it expires")


def test_a_start_keeps_what_the_broker_has_until_the_first_report(broker: StateBroker) -> None:
    home = Home(broker, "pi-1", "pi-2")
    home.hear("pi-1")
    home.report("pi-1", 40.0)
    first = home.start()
    home.run(first)
    broker.wait(lambda: home.state("pi-1").get("temperature_celsius") == 40, "the first state")
    first.end()
    restarted = Home(broker, "pi-1", "pi-2")
    second = restarted.start()
    restarted.run(second, for_s=1)
    restarted.hear("pi-1")  # its retained birth
    restarted.hear("pi-2")
    restarted.run(second, for_s=20)
    broker.say("settled", b"x")
    assert (home.state("pi-1")["online"], home.state("pi-1")["temperature_celsius"]) == (True, 40)
    restarted.report("pi-1", 41.0)
    restarted.run(second, for_s=1)
    broker.wait(lambda: home.state("pi-1")["temperature_celsius"] == 41, "the first report")
    restarted.run(second, for_s=20)
    broker.wait(lambda: home.state("pi-2").get("agent") == "online", "one that never reports")
    assert home.state("pi-2")["temperature_celsius"] is None


def test_a_value_that_is_too_old_becomes_unknown(broker: StateBroker) -> None:
    home = Home(broker, "pi-1")
    home.hear("pi-1")
    home.report("pi-1", 40.0, throttled=True)
    controller = home.start()
    home.run(controller)
    broker.wait(lambda: home.state("pi-1").get("online"), "it is online")
    home.run(controller, for_s=100)
    broker.wait(lambda: home.state("pi-1")["agent"] == "silent", "its reports ended")
    state = home.state("pi-1")
    assert (state["online"], state["temperature_celsius"], state["throttled"]) == (
        False,
        None,
        None,
    )


def test_a_restart_publishes_no_discovery_again_but_what_changed(broker: StateBroker) -> None:
    home = Home(broker, "pi-1", "pi-2")
    for name in ("pi-1", "pi-2"):
        home.hear(name)
    first = home.start()
    home.run(first)
    home.wait_discovered("pi-2")
    first.end()
    home.hear("pi-2", version="0.2.0")
    second = home.start()
    home.wait_retained(second, 2 * ENTITIES)
    home.run(second)
    version = next(iter(TOPICS.of_board("pi-2")))
    broker.wait(
        lambda: home.discovered()[version]["device"]["sw_version"] == "0.2.0", "the new version"
    )
    broker.wait(lambda: all(broker.seen[t] == 2 for t in TOPICS.of_board("pi-2")), "all of it")
    assert [broker.seen[topic] for topic in TOPICS.of_board("pi-1")] == [1] * ENTITIES


def test_a_controller_that_has_not_heard_a_board_yet_leaves_what_is_known_of_it(
    broker: StateBroker,
) -> None:
    home = Home(broker, "pi-1")
    home.hear("pi-1")
    first = home.start()
    home.run(first)
    home.wait_discovered("pi-1")
    first.end()
    unheard = Home(broker, "pi-1")
    second = unheard.start()
    home.wait_retained(second, ENTITIES)
    unheard.run(second)
    broker.say("settled", b"x")
    assert {each["device"]["model"] for each in home.discovered("pi-1").values()} == {"Pi 4"}
    assert [broker.seen[topic] for topic in TOPICS.of_board("pi-1")] == [1] * ENTITIES


def test_a_board_that_left_is_removed_after_ten_minutes(broker: StateBroker) -> None:
    home = Home(broker, "pi-1", "pi-2")
    controller = home.start()
    home.run(controller)
    home.wait_discovered("pi-2")
    home.world.cluster.apply(NodeDeleted("pi-2"))
    home.run(controller, for_s=500)
    broker.say("settled", b"x")
    assert len(home.discovered("pi-2")) == ENTITIES
    home.run(controller, for_s=300)
    home.wait_discovered("pi-2", 0)
    home.wait_discovered("pi-1")


def test_a_board_that_left_while_no_controller_ran_is_removed(broker: StateBroker) -> None:
    home = Home(broker, "pi-1", "pi-2")
    first = home.start()
    home.run(first)
    home.wait_discovered("pi-2")
    first.end()
    home.world.cluster.apply(NodeDeleted("pi-2"))
    second = home.start()
    home.wait_retained(second, 2 * ENTITIES)
    home.run(second, for_s=700)
    home.wait_discovered("pi-2", 0)
    home.wait_discovered("pi-1")


def test_nothing_is_removed_before_the_nodes_are_listed(broker: StateBroker) -> None:
    home = Home(broker, "pi-1")
    first = home.start()
    home.run(first)
    home.wait_discovered("pi-1")
    first.end()
    unlisted = ControllerHarness()
    second = broker.start(ON, unlisted.cluster, unlisted.telemetry)
    home.wait_retained(second, ENTITIES)
    home.run(second, for_s=700)
    broker.say("settled", b"x")
    home.wait_discovered("pi-1")


def test_switched_off_its_own_messages_are_removed_and_no_others(broker: StateBroker) -> None:
    others = {
        "homeassistant/sensor/leadline_other/pi-1_pods/config": b"{}",
        "homeassistant/sensor/leadline_home_lab/config": b"{}",
        "homeassistant/sensor/pi-1_pods/config": b"{}",
    }
    for topic, payload in others.items():
        broker.say(topic, payload, retain=True)
    home = Home(broker, "pi-1", "pi-2")
    first = home.start()
    home.run(first)
    home.wait_discovered("pi-1")
    home.wait_discovered("pi-2")
    first.end()
    second = home.start(OFF)
    home.wait_retained(second, 2 * ENTITIES)
    home.run(second)
    broker.wait(lambda: home.discovered().keys() == others.keys(), "only others' are left")
    broker.wait(lambda: home.said_of_controller() is None, "nor is its own end")


def test_when_home_assistant_starts_all_is_said_again(broker: StateBroker) -> None:
    home = Home(broker, "pi-1")
    controller = home.start()
    home.run(controller, for_s=70)
    home.wait_discovered("pi-1")
    before = broker.seen.copy()
    broker.say("homeassistant/status", b"offline")
    broker.say("homeassistant/status", b"online")

    def is_repeated() -> bool:
        home.run(controller, for_s=1)
        return controller.publisher._repeated_s == home.world.now_s

    broker.wait(is_repeated, "it is heard")
    # The clock stands still, so that what a slow machine takes to deliver it is no minute.
    said = [*TOPICS.of_board("pi-1"), f"{ROOT}/controller", f"{ROOT}/boards/pi-1"]
    broker.wait(lambda: all(broker.seen[each] > before[each] for each in said), "all again")
    twice = broker.seen.copy()
    broker.say("homeassistant/status", b"online")
    home.run(controller, for_s=30)  # not twice in a minute
    broker.say("settled", b"x")
    assert [broker.seen[t] for t in TOPICS.of_board("pi-1")] == [
        twice[t] for t in TOPICS.of_board("pi-1")
    ]


def test_a_controller_that_dies_is_offline_and_the_next_leader_is_not(broker: StateBroker) -> None:
    home = Home(broker, "pi-1")
    leader, standby = home.start(), home.start()
    standby.leads = False
    home.run(leader, standby)
    broker.wait(lambda: home.said_of_controller() == b"online", "the leader is online")
    leader.leads = False
    leader.reconnect()
    broker.wait(lambda: home.said_of_controller() == b"offline", "its will")
    standby.leads = True
    home.run(leader, standby, for_s=1)
    broker.wait(lambda: home.said_of_controller() == b"online", "the next one leads")
    leader.reconnect()  # as when its old session ends late

    def is_repaired() -> bool:
        home.run(leader, standby, for_s=1)
        is_online = home.said_of_controller() == b"online"
        return is_online and broker.seen[f"{ROOT}/controller"] >= 5

    broker.wait(is_repaired, "it stays online")


def test_a_leader_that_is_stopped_says_so_and_a_standby_does_not(broker: StateBroker) -> None:
    home = Home(broker, "pi-1")
    leader, standby = home.start(), home.start()
    standby.leads = False
    home.run(leader, standby)
    broker.wait(lambda: home.said_of_controller() == b"online", "the leader is online")
    # While something is sent to it, mosquitto may see its connection end before its DISCONNECT.
    home.wait_retained(standby, ENTITIES)
    standby.end()
    broker.say("settled", b"x")
    assert home.said_of_controller() == b"online"
    leader.end()
    broker.wait(lambda: home.said_of_controller() == b"offline", "the leader ended")


def test_a_node_whose_name_is_no_level_of_a_topic_is_left_out(broker: StateBroker) -> None:
    home = Home(broker)
    names = ["pi-1", "a/b", "+", "#", "a\0b", "$x", "", "ä", "x" * 300]
    home.world.cluster.apply(Relisted(tuple(Node(name, allocatable={}) for name in names), ()))
    home.run(home.start())
    home.wait_discovered("pi-1")
    broker.say("settled", b"x")
    assert len(home.discovered()) == ENTITIES
    assert [topic for topic in broker.retained if "/boards/" in topic] == [f"{ROOT}/boards/pi-1"]


def test_with_a_short_interval_each_of_many_boards_has_its_turn() -> None:
    broker = MemoryBroker()
    home = Home(broker, *(f"n{i}" for i in range(1_100)))
    home.run(home.start(PublishSettings(home_assistant=True, interval_s=1.0)), for_s=10)
    assert sum(topic.startswith(f"{ROOT}/boards/") for topic in broker.retained) == 1_100


def test_thousands_of_boards_are_published_a_few_at_a_time() -> None:
    broker = MemoryBroker()
    home = Home(broker, *(f"n{i}" for i in range(3_000)))
    controller = home.start()
    before = 0
    for _ in range(10):
        home.run(controller, for_s=1)
        said = broker.seen.total()
        assert said - before <= 500 + 20 * ENTITIES + 1
        before = said
    assert sum(topic.startswith(f"{ROOT}/boards/") for topic in broker.retained) == 3_000
