"""kube-scheduler's questions, as Go writes them and as nobody should."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.extender.protocol import (
    ProtocolError,
    ReadPod,
    error_result,
    filter_result,
    host_priorities,
    read_binding_args,
    read_extender_args,
)
from leadline_controller.extender.service import ExtenderArgs, ExtenderBindingArgs
from leadline_controller.framework.model import Node

from tests.controller.extender.harness import args, extender_args, pod_manifest, wide
from tests.kube.objects import node

BOUND = {"PodName": "web", "PodNamespace": "default", "PodUID": "u-1", "Node": "n1"}


def test_node_names_are_parsed() -> None:
    arguments = extender_args(pod_manifest("web", 5), ["n2", "n1"])
    assert (arguments.pod.key, arguments.pod.uid) == ("default/web", "uid-web")
    assert arguments.pod.annotations.bandwidth_mbps == 5
    assert (arguments.names, arguments.nodes) == (("n2", "n1"), None)


def test_the_pod_of_the_last_call_is_not_read_again() -> None:
    def ask(made: Any, last: ReadPod | None, spaces: str = "") -> ExtenderArgs:
        body = f'{{"Pod":{spaces}{json.dumps(made)},"Nodes":null,"NodeNames":["n1","n2"]}}'
        return read_extender_args(body.encode(), last=last)

    first = ask(pod_manifest("web", 5), None)
    last = ReadPod(first.pod_json, first.pod)
    again = ask(pod_manifest("web", 5), last, "  ")
    assert again.pod is first.pod
    assert ask(pod_manifest("web", 5), None, "  ").pod_json == first.pod_json
    assert (again.pod_json, again.names) == (first.pod_json, first.names)
    other = ask(pod_manifest("web", 6), last)
    assert other.pod.annotations.bandwidth_mbps == 6
    assert json.loads(other.pod_json) == pod_manifest("web", 6)
    for after in (b"x", b"}"):
        with pytest.raises(ProtocolError, match="no JSON"):
            read_extender_args(b'{"Pod":' + first.pod_json + after + b"}", last=last)


@pytest.mark.parametrize("names", [["n1", "n2"], ["n2", "n1", "n1"], ["n3"], ["\u00e4"]])
def test_names_are_the_same_whether_their_nodes_are_known_or_not(names: list[str]) -> None:
    known = {each: Node(each) for each in ("n1", "n2")}
    body = args(pod_manifest("web"), names)
    assert read_extender_args(body, known).names == read_extender_args(body).names == tuple(names)


@pytest.mark.parametrize("names", [["n1", 3], ["n1", ["n1"]], [{}], ["n1"] * 20_001])
def test_names_that_are_no_names_are_refused_beside_known_ones(names: Any) -> None:
    with pytest.raises(ProtocolError, match="NodeNames"):
        read_extender_args(args(pod_manifest("web"), names), {"n1": Node("n1")})


def test_whole_nodes_are_sent_back_unchanged() -> None:
    sent = json.dumps(wide("n1", 10), indent=2).replace('"10"', '"\\u0031\\u0030"')
    pod = json.dumps(pod_manifest("web"))
    body = f'{{"NodeNames": null, "Pod": {pod}, "Nodes": {{"items": [{sent}]}}}}'
    arguments = read_extender_args(body.encode())
    assert arguments.names == ("n1",)
    assert arguments.nodes is not None
    assert arguments.nodes["n1"].bandwidth_mbps == 10
    assert bytes(arguments.raw("n1")) == sent.encode()
    answer = b"".join(filter_result(arguments, ["n1"], {}))
    assert sent.encode() in answer
    assert json.loads(answer)["Nodes"] == {"items": [wide("n1", 10)]}


@pytest.mark.parametrize("whole", [False, True])
def test_a_filter_result_has_the_keys_of_go_and_never_two_null_lists(whole: bool) -> None:
    sent = [node("n1"), node("n2")]
    pod = pod_manifest("web")
    arguments = extender_args(pod, nodes=sent) if whole else extender_args(pod, ["n1", "n2"])
    for passing in (["n2"], []):
        failed = {"n1": 'a "reason"'}
        answer = json.loads(b"".join(filter_result(arguments, passing, failed)))
        assert answer == {
            "Nodes": {"items": [each for each in sent if each["metadata"]["name"] in passing]}
            if whole
            else None,
            "NodeNames": None if whole else passing,
            "FailedNodes": {},
            "FailedAndUnresolvableNodes": failed,
            "Error": "",
        }


def test_host_priorities_are_a_list_with_every_node() -> None:
    answer = host_priorities(extender_args(pod_manifest("web"), ["n1", "n2"]), {"n2": 10})
    assert json.loads(answer) == [{"Host": "n1", "Score": 0}, {"Host": "n2", "Score": 10}]


def test_binding_arguments_are_parsed() -> None:
    assert read_binding_args(json.dumps(BOUND).encode()) == ExtenderBindingArgs(
        "default", "web", "u-1", "n1"
    )
    assert json.loads(error_result("")) == {"Error": ""}
    assert json.loads(error_result("no")) == {"Error": "no"}


def test_arguments_without_nodes_are_valid() -> None:
    assert extender_args(pod_manifest("web"), []).names == ()
    assert extender_args(pod_manifest("web"), nodes=[]).names == ()
    null_items = json.dumps({"Pod": pod_manifest("web"), "Nodes": {"items": None}}).encode()
    assert read_extender_args(null_items).names == ()


def test_an_unreadable_node_does_not_affect_the_others() -> None:
    odd = node("n1")
    odd["status"]["allocatable"]["cpu"] = "lots"
    arguments = extender_args(pod_manifest("web"), nodes=[odd, node("n2")])
    assert arguments.names == ("n1", "n2")
    assert arguments.nodes is not None
    assert arguments.nodes.keys() == {"n2"}
    assert "Nodes.items[0].status.allocatable.cpu" in arguments.unreadable["n1"]


def test_more_nodes_than_there_may_be_are_refused_before_they_are_read() -> None:
    many = b",".join([b'{"metadata":{"name":"n"}}'] * 20_001)
    with pytest.raises(ProtocolError, match=r"Nodes\.items.*: expected 20000 nodes at most"):
        read_extender_args(b'{"Nodes":{"items":[%b]}}' % many)


def test_a_node_that_comes_twice_is_named() -> None:
    with pytest.raises(ProtocolError, match="node n2 is there twice"):
        extender_args(pod_manifest("web"), nodes=[node("n1"), node("n2"), node("n2")])


def test_an_unmodelled_demand_is_no_unreadable_annotation() -> None:
    made = pod_manifest("web")
    made["spec"]["resourceClaims"] = [{"name": "gpu"}]
    assert "resourceClaims" in str(extender_args(made, ["n1"]).pod.problem)


POD = json.dumps(pod_manifest("web"))
WRONG = [
    (b"", "the request is no JSON"),
    (b"\xff", "the request is no JSON"),
    (b'{"Pod":"\xff"}', "Pod: expected JSON: 'utf-8' codec can't decode byte 0xff"),
    (b"null", "the request: Expected `object`, got `null`"),
    (b"[]", "the request: Expected `object`, got `array`"),
    (b"{", "the request is no JSON"),
    (b'{"Pod"', "the request is no JSON"),
    (b"{1:2}", "the request is no JSON: JSON is malformed: object keys must be strings (byte 1)"),
    (b"{}{}", "trailing characters (byte 3)"),
    (b"{}", "Pod: expected an object, got nothing"),
    (b'{"Pod":3,"NodeNames":[]}', "Pod: expected an object, got 3"),
    (b'{"Pod":NaN}', "the request is no JSON"),
    (b'{"Pod":' + b"9" * 5000 + b"}", "the request can't be read"),
    (b'{"Pod":' + b"[" * 100_000, "nested too deep"),
    (
        b'{"Pod":{"metadata":{}},"NodeNames":[]}',
        "Pod.metadata.name: expected a name as Kubernetes has them, got nothing",
    ),
    (
        b'{"Pod":{"metadata":{"name":"\\ud800"}},"NodeNames":[]}',
        "the request is no JSON",
    ),
    (f'{{"Pod":{POD}}}'.encode(), "Nodes and NodeNames are both null"),
    (f'{{"Pod":{POD},"NodeNames":"n1"}}'.encode(), "NodeNames: expected a list, got text 'n1'"),
    (f'{{"Pod":{POD},"NodeNames":[1]}}'.encode(), "NodeNames[0]: expected text, got 1"),
    (f'{{"Pod":{POD},"Nodes":[]}}'.encode(), "Nodes: Expected `object | null`, got `array`"),
    (
        f'{{"Pod":{POD},"Nodes":{{"items":3}}}}'.encode(),
        "Nodes.items: Expected `array | null`, got `int`",
    ),
    (
        f'{{"Pod":{POD},"Nodes":{{"items":[3]}}}}'.encode(),
        "Nodes.items[0]: Expected `object`, got `int`",
    ),
    (
        f'{{"Pod":{POD},"Nodes":{{"items":[{{}}]}}}}'.encode(),
        "Nodes.items[0]: Object missing required field",
    ),
    (
        args(pod_manifest("web", "plenty"), ["n1"]),
        "annotation leadline.dev/bandwidth-mbps: expected a",
    ),
    (
        args(pod_manifest("web", profile_ms="{"), ["n1"]),
        "annotation leadline.dev/profile-ms: expected a",
    ),
]


@pytest.mark.parametrize(("body", "told"), WRONG, ids=[repr(each[0][:40]) for each in WRONG])
def test_an_error_is_one_line(body: bytes, told: str) -> None:
    with pytest.raises(ProtocolError) as raised:
        read_extender_args(body)
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize("missing", BOUND)
@pytest.mark.parametrize("value", [None, "", 3, "a b", "../n1"])
def test_a_binding_needs_all_of_its_fields(missing: str, value: Any) -> None:
    with pytest.raises(ProtocolError, match=f"ExtenderBindingArgs.{missing}: expected"):
        read_binding_args(json.dumps({**BOUND, missing: value}).encode())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(JSON, JSON, JSON)
def test_any_input_is_parsed_or_refused(pod: Any, nodes: Any, names: Any) -> None:
    for given_pod in (pod, pod_manifest("web")):
        body = json.dumps({"Pod": given_pod, "Nodes": nodes, "NodeNames": names}).encode()
        with suppress(ProtocolError):
            arguments = read_extender_args(body)
            assert json.loads(b"".join(filter_result(arguments, [], {})))["Error"] == ""


@given(st.binary(max_size=60), st.integers(0, 2000))
def test_bytes_in_the_middle_of_a_request(noise: bytes, at: int) -> None:
    body = args(pod_manifest("web", 5), nodes=[wide("n1", 10)])
    for broken in (body[:at] + noise + body[at:], body[:at] + noise):
        with suppress(ProtocolError):
            assert read_extender_args(broken).pod.key
