"""Runs KEDA's own operator and metrics adapter, as they are released, on a control plane.

See tests/kube/aggregation.py for how the adapter is reached.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.kube.aggregation import aggregated, deleted, is_available
from tests.kube.api import Api, ApiError
from tests.kube.control_plane import ControlPlane, ControlPlaneError
from tests.kube.daemon import LOG_LINES, stop, toolchain
from tests.kube.gobuild import keda as built_keda
from tests.kube.gobuild import print_built
from tests.kube.objects import Object, namespace
from tests.kube.released import DYING_WITH_PARENT
from tests.support.certificates import Authority
from tests.support.ports import free_port, wait_until

START_S = 90.0
NAMESPACE = "keda"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
METRICS = "external.metrics.k8s.io"
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "keda"
_OPERATOR = f"keda-operator.{NAMESPACE}.svc"
_ADAPTER = f"keda-metrics-apiserver.{NAMESPACE}.svc"


@dataclass(frozen=True)
class Keda:
    """The running operator and adapter. logs: of both."""

    operator: subprocess.Popen[bytes]
    adapter: subprocess.Popen[bytes]
    logs: tuple[Path, Path]


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder with the programs and CRDs, building them if need be."""
    return built_keda(toolchain(environ), environ)


@contextmanager
def keda(plane: ControlPlane, work: Path) -> Iterator[Keda]:
    """Yield KEDA at work on `plane`, with its files in `work`; the external metrics API is there.

    Raises ControlPlaneError with the last words of a program that does not start.
    """
    api, programs = Api(plane.kubeconfig), folder()
    certificates = work / "certs"
    pair = Authority(work / "pki").peer(_OPERATOR, _ADAPTER)
    certificates.mkdir()
    for file, name in (
        (pair.ca_file, "ca.crt"),
        (pair.cert_file, "tls.crt"),
        (pair.key_file, "tls.key"),
    ):
        shutil.copy(file, certificates / name)
    service, secure = free_port(), free_port()
    environ = {
        **os.environ,
        "KEDA_CLUSTER_OBJECT_NAMESPACE": NAMESPACE,
        "POD_NAMESPACE": NAMESPACE,
        "POD_NAME": "keda-operator",
        "WATCH_NAMESPACE": "",
        "KUBECONFIG": str(plane.kubeconfig),
    }
    with ExitStack() as cleanup:
        for path, body in _objects(programs / "crds"):
            made = api.create(path, body)
            cleanup.callback(deleted, api, f"{path}/{made['metadata']['name']}")
        service_name = _ADAPTER.partition(".")[0]
        cleanup.enter_context(aggregated(api, METRICS, service_name, NAMESPACE, secure))
        _wait_for_crds(api)
        operator, operator_log = _start(
            *(work, cleanup, environ, programs / "operator"),
            *(f"--cert-dir={certificates}", f"--metrics-service-bind-address=127.0.0.1:{service}"),
            *("--metrics-bind-address=0", "--health-probe-bind-address=0"),
            *("--enable-webhook-patching=false", "--enable-apiservice-patching=false"),
        )
        kubeconfig = plane.kubeconfig
        adapter, adapter_log = _start(
            *(work, cleanup, environ, programs / "adapter"),
            *(f"--secure-port={secure}", "--bind-address=127.0.0.1", f"--port={free_port()}"),
            *(f"--cert-dir={certificates}", f"--client-ca-file={certificates}/ca.crt"),
            f"--tls-cert-file={certificates}/tls.crt",
            f"--tls-private-key-file={certificates}/tls.key",
            f"--lister-kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--metrics-service-address=127.0.0.1:{service}",
            f"--metrics-service-grpc-authority={_OPERATOR}",
        )
        running = Keda(operator, adapter, (operator_log, adapter_log))
        _wait_until_served(api, running)
        yield running


def _start(
    work: Path, cleanup: ExitStack, environ: Mapping[str, str], program: Path, *flags: str
) -> tuple[subprocess.Popen[bytes], Path]:
    log = work / f"{program.name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*DYING_WITH_PARENT, program, *flags], stdout=output, stderr=output, env=environ
        )
    cleanup.callback(stop, process)
    return process, log


def _objects(crds: Path) -> Iterator[tuple[str, Object]]:
    yield "/api/v1/namespaces", namespace(NAMESPACE)
    for file in sorted(crds.glob("keda.sh_*.yaml")) + sorted(crds.glob("eventing*.yaml")):
        yield CRDS, yaml.safe_load(file.read_text())


def _wait_for_crds(api: Api) -> None:
    def served() -> bool:
        try:
            api.get("/apis/keda.sh/v1alpha1/scaledobjects")
            api.get("/apis/eventing.keda.sh/v1alpha1/clustercloudeventsources")
        except ApiError:
            return False
        return True

    wait_until(served, "the API serves KEDA's objects", START_S)


def _wait_until_served(api: Api, running: Keda) -> None:
    def served() -> bool:
        for process, log in zip((running.operator, running.adapter), running.logs, strict=True):
            if process.poll() is not None:
                last = " | ".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
                raise ControlPlaneError(f"KEDA's {log.stem} ended: {last}")
        return is_available(api, METRICS)

    wait_until(served, "the external metrics API is available", START_S)


def scaled_object(
    name: str,
    target: str,
    address: str,
    metadata: Mapping[str, str],
    *,
    most: int,
    authentication: str = "",
    polling_s: int = 2,
) -> Object:
    """Return a ScaledObject for a Deployment, which scales at once in both directions."""
    trigger: Object = {"type": "external", "metadata": {"scalerAddress": address, **metadata}}
    if authentication:
        trigger["metadata"]["enableTLS"] = "true"
        trigger["authenticationRef"] = {"name": authentication}
    at_once = {"stabilizationWindowSeconds": 0}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"name": target},
            "minReplicaCount": 1,
            "maxReplicaCount": most,
            "pollingInterval": polling_s,
            "advanced": {
                "horizontalPodAutoscalerConfig": {
                    "behavior": {"scaleDown": at_once, "scaleUp": at_once}
                }
            },
            "triggers": [trigger],
        },
    }


if __name__ == "__main__":
    print_built(folder)
