"""Pods' effective requests and limits, by Kubernetes' own rules."""

from typing import Any

import pytest
from leadline_controller.framework.quantity import MAX_AMOUNT
from leadline_controller.kubeobjects.amounts import pod_limits, pod_requests, read_amounts
from leadline_controller.kubeobjects.schema import PodSpec, PodStatus, Quantities
from leadline_controller.parsing.fields import FieldError
from leadline_controller.parsing.typed import decode

MIB = 1024**2


def requests(spec: dict[str, Any], status: dict[str, Any] | None = None) -> dict[str, int]:
    read = decode(spec, PodSpec, "spec"), decode(status or {}, PodStatus, "status")
    return pod_requests(*read, "pod")


def container(cpu: str | None = None, memory: str | None = None, **more: Any) -> dict[str, Any]:
    amounts = {k: v for k, v in {"cpu": cpu, "memory": memory}.items() if v is not None}
    return {"name": "c", "resources": {"requests": amounts}, **more}


def sidecar(cpu: str) -> dict[str, Any]:
    return container(cpu, restartPolicy="Always")


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": []}, None),
        ({"containers": [container("1"), container("500m")]}, 1500),
        # Init containers run one after the other: the largest counts, not their sum.
        (
            {"containers": [container("1")], "initContainers": [container("2"), container("3")]},
            3000,
        ),
        ({"containers": [container("4")], "initContainers": [container("3")]}, 4000),
        # Sidecars run beside the containers and beside the init containers after them.
        ({"containers": [container("1")], "initContainers": [sidecar("1")]}, 2000),
        (
            {"containers": [container("1")], "initContainers": [sidecar("1"), container("3")]},
            4000,
        ),
        (
            {"containers": [container("1")], "initContainers": [container("3"), sidecar("1")]},
            3000,
        ),
        (
            {
                "containers": [container("1")],
                "initContainers": [sidecar("1"), container("2"), sidecar("1")],
            },
            3000,
        ),
        ({"containers": [container("1")], "overhead": {"cpu": "250m"}}, 1250),
        (
            {
                "containers": [container("1")],
                "initContainers": [container("2")],
                "overhead": {"cpu": "250m"},
            },
            2250,
        ),
        # Pod-level requests replace the containers', also when these are larger.
        ({"containers": [container("1")], "resources": {"requests": {"cpu": "2"}}}, 2000),
        (
            {
                "containers": [container("1")],
                "resources": {"requests": {"cpu": "2"}},
                "overhead": {"cpu": "100m"},
            },
            2100,
        ),
        # A pod-level limit is the default only if no container requests the resource.
        ({"containers": [container("1")], "resources": {"limits": {"cpu": "2"}}}, 1000),
        ({"containers": [container()], "resources": {"limits": {"cpu": "2"}}}, 2000),
        # A limit is the default for a missing request, as in the API server.
        ({"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]}, 2000),
        (
            {
                "containers": [
                    {"name": "c", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}
                ]
            },
            1000,
        ),
        ({"containers": [container("1e30"), container("1e30")]}, MAX_AMOUNT),
    ],
)
def test_effective_cpu_request(spec: dict[str, Any], cpu: int | None) -> None:
    assert requests(spec).get("cpu") == cpu


def test_each_resource_is_counted_separately() -> None:
    spec = {
        "containers": [container("1", "100Mi"), container("1", "100Mi")],
        "initContainers": [container("100m", "500Mi")],
    }
    assert requests(spec) == {"cpu": 2000, "memory": 500 * MIB}


def test_extended_resources_count_and_are_never_pod_level() -> None:
    spec = {
        "containers": [{"name": "c", "resources": {"limits": {"example.com/gpu": "2"}}}],
        "resources": {"limits": {"example.com/gpu": "5"}},
    }
    assert requests(spec) == {"example.com/gpu": 2}


@pytest.mark.parametrize(
    ("status", "cpu"),
    [
        # Growing: the spec requests more than is in force.
        ({"allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}}, 2000),
        # Shrinking: the kubelet still allocates more.
        ({"allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "3"}}}, 3000),
        ({"allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "4"}}}, 4000),
    ],
)
def test_a_resize_in_progress_counts_the_larger_of_desired_and_allocated(
    status: dict[str, Any], cpu: int
) -> None:
    found = requests(
        {"containers": [container("2")]}, {"containerStatuses": [{"name": "c", **status}]}
    )
    assert found == {"cpu": cpu}


def test_an_infeasible_resize_does_not_count() -> None:
    status = {
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
        "containerStatuses": [
            {"name": "c", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {}}}
        ],
    }
    assert requests({"containers": [container("64")]}, status) == {"cpu": 1000}


def test_a_container_without_requests_counts_what_is_still_allocated() -> None:
    status = {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}
    assert requests({"containers": [container()]}, status) == {"cpu": 2000}


def test_only_sidecars_among_init_containers_can_be_resized() -> None:
    status = {"initContainerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}
    assert requests({"initContainers": [container("1")]}, status) == {"cpu": 1000}
    assert requests({"initContainers": [sidecar("1")]}, status) == {"cpu": 3000}


@pytest.mark.parametrize(("reason", "cpu"), [("Deferred", 5000), ("Infeasible", 3000)])
def test_a_pod_level_resize(reason: str, cpu: int) -> None:
    spec = {"containers": [container("1")], "resources": {"requests": {"cpu": "5"}}}
    status = {
        "conditions": [{"type": "PodResizePending", "reason": reason}],
        "allocatedResources": {"cpu": "3"},
        "resources": {"requests": {"cpu": "2", "memory": "1Gi"}},
    }
    assert requests(spec, status) == {"cpu": cpu}


def limited(cpu: str | None, **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"limits": {} if cpu is None else {"cpu": cpu}}, **more}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [limited("1"), limited("2")]}, {"cpu": 3000}),
        ({"containers": [limited("1"), limited(None)]}, {}),
        (
            {
                "containers": [limited("1")],
                "initContainers": [limited("1", restartPolicy="Always")],
            },
            {"cpu": 2000},
        ),
        ({"containers": [limited("1")], "initContainers": [limited(None)]}, {"cpu": 1000}),
        ({"containers": [limited(None)], "resources": {"limits": {"cpu": "4"}}}, {"cpu": 4000}),
        ({"containers": [limited("1")], "overhead": {"cpu": "250m"}}, {"cpu": 1250}),
        ({"containers": []}, {}),
    ],
)
def test_pod_limits(spec: dict[str, Any], expected: dict[str, int]) -> None:
    assert pod_limits(decode(spec, PodSpec, "spec"), "pod") == expected


@pytest.mark.parametrize(
    ("amounts", "message"),
    [
        ({"cpu": "lots"}, "r.cpu: 'lots' is no quantity: expected a number like 500m, 4Gi or 2"),
        ({"cpu": True}, "r.cpu: expected a quantity like 500m, 4Gi or 2, got true"),
        ({"memory": []}, "r.memory: expected a quantity like 500m, 4Gi or 2, got a list"),
        ({"memory": "-1"}, "r.memory: expected a quantity of 0 or more, got text '-1'"),
        ({"memory": float("nan")}, "r.memory: 'nan' is no quantity"),
        ({"memory": 2**100_000}, "r.memory: far too large"),
    ],
    ids=["text", "flag", "list", "negative", "nan", "huge"],
)
def test_an_invalid_quantity_names_its_field(amounts: dict[str, Any], message: str) -> None:
    with pytest.raises(FieldError) as caught:
        read_amounts(decode(amounts, Quantities, "r"), "r")
    assert str(caught.value).startswith(message)


def test_a_number_is_a_quantity() -> None:
    found = read_amounts({"cpu": 2, "memory": 1e9, "pods": 3}, "r")
    assert found == {"cpu": 2000, "memory": 10**9, "pods": 3}
