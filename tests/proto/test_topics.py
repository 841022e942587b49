import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_wire import topics
from leadline_wire.topics import DELIVERY, Kind, Topic, TopicError

LEVELS = st.from_regex(r"[a-zA-Z0-9]([-a-zA-Z0-9.]{0,20}[a-zA-Z0-9])?", fullmatch=True)


@given(LEVELS, LEVELS, st.sampled_from(Kind))
def test_a_topic_survives_a_round_trip(cluster: str, node: str, kind: Kind) -> None:
    text = topics.topic(cluster, node, kind)
    assert topics.parse(text) == Topic(cluster, node, kind)
    assert str(topics.parse(text)) == text


def test_the_scheme_of_the_interfaces() -> None:
    assert topics.topic("home", "pi-1", Kind.REPORT) == "leadline/v1/home/pi-1/report"
    assert topics.subscription("home", Kind.RTT) == "leadline/v1/home/+/rtt"
    assert {kind.value for kind in Kind} == {
        *("birth", "report", "rtt", "bandwidth", "traffic", "status", "lease")
    }


@pytest.mark.parametrize(
    "text",
    [
        *("", "/", "leadline", "leadline/v1", "leadline/v1/home/pi-1", "leadline/v2/home/pi-1/rtt"),
        *("other/v1/home/pi-1/rtt", "leadline/v1/home/pi-1/rtt/more", "leadline/v1/home/pi-1/RTT"),
        *("leadline/v1//pi-1/rtt", "leadline/v1/home//rtt", "leadline/v1/+/pi-1/rtt"),
        *("leadline/v1/home/#/rtt", "leadline/v1/home/pi 1/rtt", "leadline/v1/home/-pi/rtt"),
        *("leadline/v1/home/pi\n/rtt", "leadline/v1/home/p\x00/rtt", "leadline/v1/home/pi-1/x"),
        "leadline/v1/home/" + "a" * 254 + "/rtt",
    ],
)
def test_a_topic_outside_the_scheme_is_refused(text: str) -> None:
    with pytest.raises(TopicError):
        topics.parse(text)


@given(st.text())
def test_any_text_is_a_topic_or_refused(text: str) -> None:
    try:
        read = str(topics.parse(text))
    except TopicError:
        read = text
    assert read == text


@pytest.mark.parametrize("name", ["", "+", "#", "a/b", "a b", ".a", "a-", "$SYS", "a" * 254, "ü"])
def test_a_name_that_is_no_topic_level_is_refused(name: str) -> None:
    with pytest.raises(TopicError):
        topics.topic(name, "pi-1", Kind.RTT)
    with pytest.raises(TopicError):
        topics.topic("home", name, Kind.RTT)
    with pytest.raises(TopicError):
        topics.subscription(name, Kind.RTT)


def test_each_kind_has_its_delivery() -> None:
    assert set(DELIVERY) == set(Kind)
    assert {kind for kind, way in DELIVERY.items() if way.retain} == {Kind.BIRTH, Kind.STATUS}
    lease = DELIVERY[Kind.LEASE]
    assert lease.expiry_s is not None, "a lease that waited must not start later"
    assert lease.expiry_s <= 10
    assert lease.qos == 0, "a sender that reconnects must not send old leases again"
