"""The annotation `leadline.dev/peers`."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from leadline_controller.framework.model import DeclaredPeer
from leadline_controller.kubeobjects.annotations import AnnotationError, read_annotations
from leadline_controller.kubeobjects.peers import MAX_PEERS, read_peers, write_peers

ALPHABET = st.sampled_from([*"=@<,./:- ", "rps", "ms", "db", "5", "node/", "1e3", "192.0.2.7", "é"])


def refusal(text: str) -> str:
    with pytest.raises(AnnotationError) as caught:
        read_annotations({"leadline.dev/peers": text})
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "peers"),
    [
        ("db", [DeclaredPeer("db", 1.0)]),
        ("db=5@20rps<4.5ms", [DeclaredPeer("db", 5.0, 20.0, 4.5)]),
        ("db@20rps", [DeclaredPeer("db", 1.0, 20.0)]),
        ("db<5ms", [DeclaredPeer("db", 1.0, None, 5.0)]),
        (" mqtt.infra = 0.2 , db ", [DeclaredPeer("mqtt.infra", 0.2), DeclaredPeer("db")]),
        ("node/nas-1=20", [DeclaredPeer("node/nas-1", 20.0)]),
        ("192.0.2.7=0", [DeclaredPeer("192.0.2.7", 0.0)]),
        ("2001:DB8:0::7=1e2", [DeclaredPeer("2001:db8::7", 100.0)]),
    ],
)
def test_what_is_declared(text: str, peers: list[DeclaredPeer]) -> None:
    assert list(read_peers(text)) == peers


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "entry 1: expected a Service, a workload, NAME.NAMESPACE, node/NAME or an address"),
        ("db,,cache", "entry 2: expected a Service"),
        ("db, Cache", "got text 'Cache'"),
        ("node/", "entry 1: expected a Service"),
        ("a/b", "got text 'a/b'"),
        ("127.0.0.300:80", "got text '127.0.0.300:80'"),
        ("db=", "entry 1: Mbit/s after '=': expected a number from 0 to 1e+12, got text ''"),
        ("db=-1", "got text '-1'"),
        ("db=nan", "got text 'nan'"),
        ("db=5Mbit", "got text '5Mbit'"),
        ("db@20", "entry 1: requests after '@': expected a number from 0 to 1e+12, such as 5rps"),
        ("db<5", "entry 1: round trip after '<': expected a number from 0 to 1e+12, such as 5ms"),
        ("db<5rps", "such as 5ms, got text '5rps'"),
        ("db<5ms@2rps", "expected NAME, NAME=Mbit/s, then @requests a second, then <round trip"),
        ("db=1=2", "such as db=5@20rps<5ms, got text 'db=1=2'"),
        ("db=1, cache, db=2", "entry 3: db comes twice"),
        ("::1,0:0::1", "entry 2: ::1 comes twice"),
        (",".join(f"p{i}" for i in range(65)), "expected 64 peers at most, got more"),
        ("a" * 254, "entry 1: expected a Service"),
    ],
)
def test_a_peer_that_cannot_be_read(text: str, said: str) -> None:
    found = refusal(text)
    assert found.startswith("annotation leadline.dev/peers: ")
    assert said in found
    assert len(found) < 300


def test_there_may_be_sixty_four() -> None:
    assert len(read_peers(",".join(f"p{i}" for i in range(MAX_PEERS)))) == 64


@given(st.lists(ALPHABET).map("".join) | st.text())
@example("-" * 200_000)
@example("a" + "-" * 200_000)
def test_any_text_is_peers_or_one_error_and_peers_are_written_as_they_were(text: str) -> None:
    try:
        peers = read_annotations({"leadline.dev/peers": text}).peers
    except AnnotationError as error:
        said = str(error)
        assert said.startswith("annotation leadline.dev/peers: ")
        assert "expected" in said or said.endswith("comes twice")
        assert "\n" not in said
        return
    assert 1 <= len(peers) <= MAX_PEERS
    assert read_peers(write_peers(peers, str)) == peers
