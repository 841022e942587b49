"""What the metrics API says, as metrics-server writes it, and as nobody should."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.ports import PodUsage
from leadline_controller.kubeobjects.usage import read_usage

# As metrics-server 0.9 answered for a pod of two containers.
SAID: dict[str, Any] = {
    "metadata": {"name": "web-1", "namespace": "shop", "creationTimestamp": "2030-01-01T00:00:16Z"},
    "timestamp": "2030-01-01T00:00:03Z",
    "window": "12.757s",
    "containers": [
        {"name": "main", "usage": {"cpu": "48085142n", "memory": "920Ki"}},
        {"name": "side", "usage": {"cpu": "2m", "memory": "1Mi"}},
    ],
}


def test_the_containers_of_a_pod_count_together() -> None:
    expected = PodUsage("shop", "web-1", 0.050085142, 1944 * 1024, 1893456003.0)
    assert read_usage(json.dumps(SAID).encode()) == expected
    assert read_usage(SAID) == expected


def container(**usage: object) -> dict[str, Any]:
    return {**SAID, "containers": [SAID["containers"][0], {"usage": usage}]}


@pytest.mark.parametrize(
    "said",
    [
        *({name: each for name, each in SAID.items() if name != gone} for gone in SAID),
        {**SAID, "containers": []},
        {**SAID, "timestamp": "just now"},
        {**SAID, "metadata": {"name": "web\n1"}},
        container(cpu="1"),
        container(cpu="1", memory="-1"),
        container(cpu="1e999", memory="1"),
        container(cpu="many", memory="1"),
    ],
    ids=lambda said: json.dumps(said)[-80:],
)
def test_what_does_not_say_both_of_all_containers_says_nothing(said: dict[str, Any]) -> None:
    assert (read_usage(said) is None) == ("window" in said)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda parts: st.lists(parts) | st.dictionaries(st.sampled_from([*SAID, "usage"]), parts),
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys([*SAID, "x"], anything)), st.binary())
def test_no_answer_raises(said: dict[str, Any], noise: bytes) -> None:
    for data in ({**SAID, **said}, json.dumps({**SAID, **said}).encode(), noise):
        found = read_usage(data)
        assert found is None or 0 <= found.cpu_cores + found.memory_bytes < 1e17
