from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.model import DeclaredPeer, PodAnnotations
from leadline_controller.kubeobjects.annotations import (
    NODE_LABELS,
    POD_ANNOTATIONS,
    AnnotationError,
    node_warnings,
    pod_warnings,
    read_annotations,
)
from leadline_controller.kubeobjects.manifest import read_node, read_pod


def test_reads_every_annotation() -> None:
    annotations = read_annotations(
        {
            "leadline.dev/user-node": "n1",
            "leadline.dev/data-mb": "0.75",
            "leadline.dev/bandwidth-mbps": "3",
            "leadline.dev/deadline-s": "10",
            "leadline.dev/response-time-ms": "200",
            "leadline.dev/profile-ms": '{"n1": 5000, "fast": 30.5}',
            "leadline.dev/qos-edge-ratio": "0.5",
            "leadline.dev/peers": "db=5@20rps",
            "leadline.dev/of-the-future": "x",
            "kubectl.kubernetes.io/something": "y",
        }
    )
    assert annotations == PodAnnotations(
        user_node="n1",
        data_mb=0.75,
        bandwidth_mbps=3.0,
        deadline_s=10.0,
        response_time_ms=200.0,
        profile_ms={"n1": 5000.0, "fast": 30.5},
        qos_edge_ratio=0.5,
        peers=(DeclaredPeer("db", 5.0, 20.0),),
    )


@pytest.mark.parametrize(
    ("annotations", "labels", "said"),
    [
        ({"leadline.dev/data-mbs": "1"}, {}, "annotation leadline.dev/data-mbs means nothing: did"),
        ({"leadline.dev/data-mbs": "1"}, {}, "did you mean leadline.dev/data-mb?"),
        ({"leadline.dev/user_node": "n1"}, {}, "did you mean leadline.dev/user-node?"),
        ({"leadline.dev/zzz": "1"}, {}, "Leadline does not know it"),
        (
            {},
            {"leadline.dev/data-mb": "1"},
            "label leadline.dev/data-mb means nothing: it is read as",
        ),
        ({"leadline.dev/": ""}, {}, "Leadline does not know it"),
    ],
)
def test_an_annotation_of_a_pod_that_means_nothing_is_told(
    annotations: dict[str, str], labels: dict[str, str], said: str
) -> None:
    (warning,) = pod_warnings(annotations, labels)
    assert said in warning
    manifest = {"metadata": {"name": "p", "annotations": annotations, "labels": labels}}
    assert read_pod(manifest).warnings == (warning,)


@pytest.mark.parametrize(
    ("annotations", "labels", "said"),
    [
        ({}, {"leadline.dev/teir": "edge"}, "label leadline.dev/teir means nothing: did you mean"),
        (
            {},
            {"leadline.dev/tier": "egde"},
            "leadline.dev/tier: expected edge or cloud, got 'egde'",
        ),
        ({}, {"leadline.dev/bandwidth-mbps": "100M"}, "expected a number of Mbit/s, got '100M'"),
        ({}, {"leadline.dev/preferred-node": "yes"}, "expected true or false, got 'yes'"),
        (
            {"leadline.dev/tier": "edge"},
            {},
            "annotation leadline.dev/tier means nothing: it is read",
        ),
    ],
)
def test_a_label_of_a_node_that_means_nothing_is_told(
    annotations: dict[str, str], labels: dict[str, str], said: str
) -> None:
    (warning,) = node_warnings(annotations, labels)
    assert said in warning
    manifest = {"metadata": {"name": "n", "annotations": annotations, "labels": labels}}
    assert read_node(manifest).warnings == (warning,)


def test_what_leadline_knows_and_what_is_not_its_own_is_no_warning() -> None:
    of_others = {"app": "web", "node.kubernetes.io/tier": "x", "leadline.dev.example/tier": "x"}
    known = {f"leadline.dev/{name}": "1" for name in POD_ANNOTATIONS}
    assert pod_warnings({**known, **of_others}, of_others) == ()
    labels = {"leadline.dev/tier": "edge", "leadline.dev/bandwidth-mbps": "94.5"}
    labels |= {"leadline.dev/class": "pi4", "leadline.dev/preferred-node": "true"}
    assert node_warnings(of_others, {**labels, **of_others}) == ()


def test_warnings_are_bounded() -> None:
    hostile = {f"leadline.dev/{'x' * 10_000}{number}": "1" for number in range(1000)}
    warnings = pod_warnings(hostile, hostile)
    assert len(warnings) == 4
    assert max(map(len, warnings)) < 250


def test_the_page_has_every_annotation_and_label() -> None:
    page = (Path(__file__).parents[3] / "docs/annotations.md").read_text()
    for name in (*POD_ANNOTATIONS, *NODE_LABELS, "extra-replica"):
        assert f"| `leadline.dev/{name}` |" in page


def test_a_pod_without_annotations_has_no_hints() -> None:
    assert read_annotations({}) == PodAnnotations()


NUMBERS = ["data-mb", "bandwidth-mbps", "deadline-s", "response-time-ms", "qos-edge-ratio"]


@pytest.mark.parametrize("key", NUMBERS)
@pytest.mark.parametrize("text", ["", "much", "-1", "nan", "inf", "1e13", "-0.001", "1,5"])
def test_an_invalid_number_names_the_annotation(key: str, text: str) -> None:
    with pytest.raises(
        AnnotationError, match=rf"^annotation leadline\.dev/{key}: expected a number from"
    ):
        read_annotations({f"leadline.dev/{key}": text})


def test_the_qos_edge_ratio_is_at_most_one() -> None:
    with pytest.raises(AnnotationError, match=r"leadline\.dev/qos-edge-ratio: expected a share"):
        read_annotations({"leadline.dev/qos-edge-ratio": "1.01"})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "[]",
        "{",
        "[" * 100_000,
        '{"a": ' + "9" * 5000 + "}",  # longer than Python converts
        '{"a": "x"}',
        '{"a": -1}',
        '{"a": NaN}',
        '{"a": 1e400}',
        '{"a": true}',
        '{"a": null}',
        '{"a": {"b": 1}}',
        "{" + ", ".join(f'"n{i}": 1' for i in range(5000)) + "}",
    ],
    ids=range(14),
)
def test_an_invalid_profile_names_the_annotation(text: str) -> None:
    with pytest.raises(AnnotationError, match=r"^annotation leadline\.dev/profile-ms") as caught:
        read_annotations({"leadline.dev/profile-ms": text})
    assert len(str(caught.value)) < 300


@given(st.sampled_from([*NUMBERS, "profile-ms", "user-node", "peers"]), st.text())
def test_any_text_is_parsed_or_rejected_with_an_error(key: str, text: str) -> None:
    try:
        read = (
            read_annotations({f"leadline.dev/{key}": text}) != PodAnnotations()
            or text.strip()[:1] == "{"
        )
        refusal = None
    except AnnotationError as error:
        refusal = str(error)
    assert read if refusal is None else f"leadline.dev/{key}" in refusal
