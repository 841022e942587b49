"""The program `leadline-enroll`: keeps this node's certificate current where the agent is a pod.

It runs beside the agent and alone has the pod's token, which is bound to the pod. The API server
writes the node of such a token into the request for a certificate, and the controller signs for no
other node. The agent reads the file whenever it connects. Only the standard library and openssl are
used: this process waits for days, and boards are small.
"""

import base64
import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from leadline_wire.certificates import Certificate, read

from leadline_agent.text import one_line
from leadline_agent.tls import tls_context

LOG = logging.getLogger(__name__)
SIGNER = "leadline.dev/agent"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
RENEW_AFTER = 2 / 3  # of its life
MAX_SLEEP_S = 600.0  # a clock that is set meanwhile is noticed
MAX_RETRY_S = 120.0
PATIENCE_S = 300.0  # for the controller; then a new request is made
TIMEOUT_S = 15.0
MAX_ANSWER_BYTES = 1 << 20


class EnrollError(Exception):
    """There is no certificate; str() says why and what to do."""


@dataclass(frozen=True, slots=True)
class ApiServer:
    """The API server, as kubelet tells pods of it. account: token and ca.crt, which change."""

    host: str
    port: int
    account: Path = ACCOUNT

    def call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """The object that answers. Raises EnrollError."""
        try:
            token = (self.account / "token").read_text(encoding="ascii").strip()
            context = tls_context(self.account / "ca.crt")
            connection = HTTPSConnection(self.host, self.port, timeout=TIMEOUT_S, context=context)
            try:
                headers = {
                    "Authorization": f"Bearer {token}",
                    "Content-Type": "application/json",
                }
                content = None if body is None else json.dumps(body)
                connection.request(method, path, content, headers)
                answer = connection.getresponse()
                found = json.loads(answer.read(MAX_ANSWER_BYTES))
            finally:
                connection.close()
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            raise EnrollError(f"API server {self.host}:{self.port}: {error}") from None
        if not isinstance(found, dict) or answer.status >= 400:
            why = found.get("message") if isinstance(found, dict) else found
            raise EnrollError(f"API server: {method} {path}: {answer.status} {why}")
        return found


def renewal_s(certificate: Certificate, now: datetime) -> float:
    """Seconds until a certificate is to be renewed; 0 or less: now."""
    life = certificate.not_after - certificate.not_before
    return (certificate.not_before + life * RENEW_AFTER - now).total_seconds()


def enroll(
    server: ApiServer, node: str, file: Path, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Have a new key certified and replace `file`, which has both. Raises EnrollError, OSError."""
    with TemporaryDirectory(dir=file.parent) as folder:  # in memory, where the key is to stay
        key, new = Path(folder, "key.pem"), Path(folder, "new.pem")
        made = subprocess.run(  # noqa: S603 - no shell
            [
                *("openssl", "req", "-new", "-newkey", "ec", "-pkeyopt"),
                *("ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-subj", f"/CN={node}"),
            ],
            capture_output=True,
            check=False,
        )
        if made.returncode:
            raise EnrollError(f"openssl req: {made.stderr.decode(errors='replace')}")
        signed = _signed(server, node, made.stdout, sleep)
        new.touch(mode=0o600)
        new.write_bytes(signed + key.read_bytes())
        read(new)
        new.replace(file)  # at once, so that nobody reads one's key with the other's certificate


def _signed(server: ApiServer, node: str, request: bytes, sleep: Callable[[float], None]) -> bytes:
    """The certificate for a request, in PEM. Raises EnrollError."""
    spec = {
        "request": base64.b64encode(request).decode(),
        "signerName": SIGNER,
        "usages": ["digital signature", "client auth"],
    }
    kind = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    body = {**kind, "metadata": {"generateName": f"leadline-agent-{node}-"}, "spec": spec}
    made = server.call("POST", REQUESTS, body)
    waited_s, wait_s = 0.0, 1.0
    try:
        path = f"{REQUESTS}/{made['metadata']['name']}"
        while waited_s < PATIENCE_S:
            sleep(wait_s)
            waited_s, wait_s = waited_s + wait_s, min(2 * wait_s, 10.0)
            status = server.call("GET", path).get("status") or {}
            if status.get("certificate"):
                return base64.b64decode(status["certificate"])
            for condition in status.get("conditions") or ():
                if condition["type"] in ("Denied", "Failed"):
                    raise EnrollError(f"{condition['type'].lower()}: {condition.get('message')}")
    except (TypeError, KeyError, AttributeError, ValueError):
        raise EnrollError("API server: the answer is no CertificateSigningRequest") from None
    raise EnrollError(
        f"{made['metadata']['name']} was not signed in {PATIENCE_S:g} s: does a controller with "
        "issuing.authority_cert_file run?"
    )


def keep(
    server: ApiServer, node: str, file: Path, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Enroll, and again in time, for ever."""
    failures = 0
    while True:
        try:
            left_s = renewal_s(read(file), datetime.now(UTC))
        except (OSError, ValueError):
            left_s = 0.0
        if left_s > 0:
            sleep(min(left_s, MAX_SLEEP_S))
            continue
        try:
            enroll(server, node, file, sleep)
            failures = 0
            LOG.info("node %s: a certificate until %s", node, f"{read(file).not_after:%Y-%m-%d}")
        except (EnrollError, OSError, ValueError) as error:
            failures += 1
            jitter = random.uniform(0.5, 1.0)  # noqa: S311 - no secret
            wait_s = min(MAX_RETRY_S, 2.0**failures) * jitter
            LOG.warning(
                "node %s: no new certificate: %s; trying again", node, one_line(str(error), 400)
            )
            sleep(wait_s)


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Run until SIGTERM; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    # The first process of a container ends by no signal that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    os.umask(0o077)
    try:
        server = ApiServer(
            environ["KUBERNETES_SERVICE_HOST"], int(environ["KUBERNETES_SERVICE_PORT"])
        )
        node, file = environ["LEADLINE_NODE"], Path(environ["LEADLINE_BROKER_TLS_CERT_FILE"])
    except (KeyError, ValueError) as error:
        sys.stderr.write(f"leadline-enroll: expected to run in a pod of the DaemonSet: {error}\n")
        return 2
    keep(server, node, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
