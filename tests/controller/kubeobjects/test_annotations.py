import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.model import PodAnnotations
from leadline_controller.kubeobjects.annotations import AnnotationError, read_annotations


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
    )


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


@given(st.sampled_from([*NUMBERS, "profile-ms", "user-node"]), st.text())
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
