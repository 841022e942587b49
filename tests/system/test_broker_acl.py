"""The ACL of the role `broker`, with a real mosquitto: each client publishes and receives only its
own messages."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from leadline_controller.homeassistant.messages import Topics
from leadline_wire.topics import Kind

from tests.attack.telemetry import stolen_id
from tests.rollout.mqtt_attempt import MqttAttempt
from tests.support.broker_role import CONTROLLER, controller_of, role_broker
from tests.support.certificates import Authority, Certificate
from tests.support.mosquitto import Broker
from tests.support.ports import wait_until

pytestmark = pytest.mark.broker
ROOT = "leadline/v1/home"
HOME_ASSISTANT, ANOTHER = "home-assistant:leadline", "home-assistant:attic"
PUBLISHED = [
    "leadline/state/home/controller",
    "leadline/state/home/boards/pi-1",
    *Topics("home").of_board("pi-1"),
]
BIRTH = "homeassistant/status"
NOT_OURS = [
    "leadline/state/home/boards",
    "leadline/state/other/controller",
    "leadline/state/other/boards/pi-1",
    *Topics("other").of_board("pi-1"),
    "homeassistant/sensor/pi-1/config",
    "homeassistant/switch/leadline_home/pi-1_pods/config",
    "homeassistant/sensor/leadline_home/pi-1_pods",
]
SAYINGS = sorted(set(Kind) - {Kind.LEASE})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("acl")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder / "ca")


@pytest.fixture(scope="module")
def broker(folder: Path, authority: Authority) -> Iterator[Broker]:
    readers, controllers = [HOME_ASSISTANT, ANOTHER], ["a", "b"]
    with role_broker(folder, authority, "home", ["pi-9"], controllers, readers) as broker:
        yield broker


def keys(certificate: Certificate) -> str:
    """A folder with the three files by the names that machines have them."""
    folder = certificate.cert_file.with_suffix(".keys")
    folder.mkdir(exist_ok=True)
    names = {"ca": certificate.ca_file, "cert": certificate.cert_file, "key": certificate.key_file}
    for name, file in names.items():
        (folder / f"{name}.pem").write_text(file.read_text())
    return str(folder)


def attempt(broker: Broker, authority: Authority, name: str, **asked: object) -> MqttAttempt:
    base = {"host": "localhost", "port": broker.port, "id": f"{name} tries {sorted(asked)}"}
    certificate = authority.client(name.replace(":", "-"), common_name=name)
    made = MqttAttempt(base | {"keys": keys(certificate)} | asked)
    made.run()
    return made


def allowed(broker: Broker, authority: Authority, name: str, topics: list[str]) -> list[str]:
    """Which of the topics this client may write."""
    answers = attempt(broker, authority, name, publish=topics).answers
    assert set(answers) == set(topics)
    return [topic for topic in topics if answers[topic] != "Not authorized"]


def test_a_node_says_its_own_and_nothing_else(broker: Broker, authority: Authority) -> None:
    own = [f"{ROOT}/pi-1/{kind}" for kind in SAYINGS]
    others = [f"{ROOT}/pi-2/{kind}" for kind in Kind]
    strange = [f"{ROOT}/pi-1/lease", f"{ROOT}/pi-1/report/more", "leadline/v1/other/pi-1/report"]
    dollar = ["$SYS/broker/version", "$CONTROL/dynamic-security/v1", "$share/x/leadline"]
    assert allowed(broker, authority, "pi-1", [*own, *others, *strange, *dollar, "x"]) == own


@pytest.mark.parametrize("name", [CONTROLLER, controller_of("a"), controller_of("b")])
def test_the_controller_gives_leases_and_speaks_for_no_node(
    broker: Broker, authority: Authority, name: str
) -> None:
    leases = [f"{ROOT}/{node}/lease" for node in ("pi-1", "pi-2")]
    event_queue = [f"{ROOT}/pi-1/{kind}" for kind in SAYINGS]
    rest = ["leadline/v1/other/pi-1/lease", "$CONTROL/dynamic-security/v1", "x"]
    assert allowed(broker, authority, name, [*leases, *event_queue, *rest]) == leases


@pytest.mark.parametrize(
    ("name", "may"),
    [(controller_of("a"), PUBLISHED), (HOME_ASSISTANT, [BIRTH]), ("pi-1", []), ("pi-9", [])],
)
def test_only_the_controller_publishes_states_and_only_those_of_its_cluster(
    broker: Broker, authority: Authority, name: str, may: list[str]
) -> None:
    assert allowed(broker, authority, name, [*PUBLISHED, *NOT_OURS, BIRTH]) == may


def test_without_the_setting_the_controller_publishes_no_states(
    tmp_path: Path, authority: Authority
) -> None:
    with role_broker(tmp_path, authority, "home", controllers=["a"]) as broker:
        assert allowed(broker, authority, controller_of("a"), [*PUBLISHED, BIRTH]) == []
        assert allowed(broker, authority, HOME_ASSISTANT, [*PUBLISHED, BIRTH]) == []


@pytest.mark.parametrize(
    ("name", "heard"),
    [
        (HOME_ASSISTANT, {*PUBLISHED, BIRTH}),
        (controller_of("a"), {PUBLISHED[0], *Topics("home").of_board("pi-1"), BIRTH}),
        ("pi-1", {f"{ROOT}/pi-1/lease"}),
    ],
)
def test_states_are_heard_by_home_assistant_and_by_no_board(
    broker: Broker, authority: Authority, folder: Path, name: str, heard: set[str]
) -> None:
    last = f"{ROOT}/pi-1/lease" if name == "pi-1" else BIRTH
    ready = folder / f"ready-states-{name}"
    with ThreadPoolExecutor(1) as pool:
        subscriber = pool.submit(
            lambda: attempt(
                *(broker, authority, name),
                subscribe=["leadline/state/#", "homeassistant/#", f"{ROOT}/+/lease"],
                until=last,
                ready=str(ready),
            )
        )
        wait_until(ready.exists, "the subscriber is ready")
        attempt(broker, authority, controller_of("b"), publish=[*PUBLISHED, f"{ROOT}/pi-1/lease"])
        attempt(broker, authority, ANOTHER, publish=[BIRTH])
        assert set(subscriber.result(60).heard) == heard


def test_a_host_that_has_no_controller_may_not_be_one(broker: Broker, authority: Authority) -> None:
    leases = [f"{ROOT}/pi-1/lease"]
    assert allowed(broker, authority, controller_of("c"), leases) == []


def test_a_node_that_is_locked_out_says_nothing(broker: Broker, authority: Authority) -> None:
    topics = [f"{ROOT}/pi-9/{kind}" for kind in Kind]
    assert allowed(broker, authority, "pi-9", topics) == []


@pytest.mark.parametrize("name", ["nobody", "+", "#", "pi-1/report"])
def test_a_strange_name_says_nothing_for_a_node(
    broker: Broker, authority: Authority, name: str
) -> None:
    certificate = authority.client("strange", common_name=name)
    topics = [f"{ROOT}/pi-1/{kind}" for kind in Kind]
    asked = {"host": "localhost", "port": broker.port, "id": "s", "keys": keys(certificate)}
    made = MqttAttempt(asked | {"publish": topics})
    made.run()
    # mosquitto hangs up on a name that would be a wildcard.
    assert made.failure or set(made.answers) == set(topics)
    assert set(made.answers.values()) <= {"Not authorized"}


@pytest.mark.parametrize(
    ("name", "last", "heard"),
    [
        ("pi-1", f"{ROOT}/pi-1/lease", {f"{ROOT}/pi-1/lease"}),
        (
            controller_of("a"),
            f"{ROOT}/pi-1/status",
            {f"{ROOT}/pi-1/{kind}" for kind in SAYINGS},
        ),
    ],
)
def test_everybody_hears_what_is_for_them(
    broker: Broker, authority: Authority, folder: Path, name: str, last: str, heard: set[str]
) -> None:
    """All is subscribed to; what comes until the last message is what may be heard."""
    ready = folder / f"ready-{name}"
    with ThreadPoolExecutor(1) as pool:
        subscriber = pool.submit(
            lambda: attempt(
                *(broker, authority, name),
                subscribe=["#", "$SYS/#", f"{ROOT}/+/lease", f"{ROOT}/+/report"],
                until=last,
                ready=str(ready),
            )
        )
        wait_until(ready.exists, "the subscriber is ready")
        attempt(
            *(broker, authority, controller_of("b")),
            publish=[f"{ROOT}/pi-2/lease", f"{ROOT}/pi-1/lease"],
            id="says leases",
        )
        said = [f"{ROOT}/pi-1/{kind}" for kind in SAYINGS]
        attempt(broker, authority, "pi-1", publish=said, id="says the rest")
        assert set(subscriber.result(60).heard) == heard


def test_a_stolen_client_id_costs_neither_of_two_controllers_a_report(tmp_path: Path) -> None:
    assert (check := stolen_id(tmp_path, 30)).held, check
