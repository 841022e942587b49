"""Which requests for certificates of agents are signed, and the signature.

A pod's token is bound to the pod, and the API server writes the token's node into each request that
is made with it (KEP-4193, Kubernetes 1.30 or newer), so nobody can ask for another node. Of a
request only the public key is used; name, uses and time of the certificate are set here. The
signature is openssl's, because no library of the controller has X.509.
"""

import base64
import secrets
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import field

from leadline_controller.kubeobjects.schema import Metadata, Part
from leadline_controller.parsing.settings import REQUIRED, readable_file, setting

SIGNER = "leadline.dev/agent"
AGENT = "system:serviceaccount:kube-system:leadline-agent"
NODE_NAME = "authentication.kubernetes.io/node-name"
USAGES = frozenset(("client auth", "digital signature"))
MAX_REQUEST_BYTES = 8192
_OPENSSL_S = 20.0
_EXTENSIONS = """\
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=clientAuth
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
"""


class RefusedError(Exception):
    """A request that is not to be signed; str() says why, in one line."""


class SigningError(Exception):
    """The authority does not sign; str() says why."""


@dataclass(frozen=True, slots=True)
class IssuingSettings:
    """The authority that signs the certificates of agents that are pods."""

    authority_cert_file: Path = setting(
        REQUIRED,
        "the authority of the certificates of [agents that are pods](cluster.md#agents-as-pods); "
        "without a section `[issuing]` they get none",
        read=readable_file,
    )
    authority_key_file: Path = setting(
        REQUIRED, "the authority's key, without a passphrase", read=readable_file
    )
    days: int = setting(
        7, "how long a certificate is valid; it is renewed after two thirds", least=1, most=30
    )


class _Spec(Part):
    signer_name: str = ""
    username: str = ""
    request: str = ""
    usages: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = field(default_factory=dict)


class _Condition(Part):
    type: str = ""


class Status(Part):
    """What was answered."""

    certificate: str = ""
    conditions: tuple[_Condition, ...] = ()


class Request(Part):
    """A CertificateSigningRequest, as far as it is read."""

    metadata: Metadata
    spec: _Spec
    status: Status = Status()

    @property
    def is_open(self) -> bool:
        """Whether nobody has answered it."""
        conditions = {each.type for each in self.status.conditions}
        return not (self.status.certificate or conditions & {"Denied", "Failed"})


def node_of(request: Request, nodes: Collection[str]) -> str:
    """The node for which a request is to be signed, if its key allows it. Raises RefusedError."""
    spec = request.spec
    if spec.signer_name != SIGNER:
        raise RefusedError(f"expected the signer {SIGNER}")
    if spec.username != AGENT:
        raise RefusedError(f"only {AGENT} gets certificates of {SIGNER}")
    if frozenset(spec.usages) != USAGES:
        raise RefusedError(f"expected the usages {' and '.join(sorted(USAGES))}")
    names = spec.extra.get(NODE_NAME, ())
    if len(names) != 1:
        raise RefusedError(f"expected the token of a pod: {NODE_NAME} has {len(names)} values")
    if names[0] not in nodes:
        raise RefusedError("the pod's node is not a node of this cluster")
    if names[0].startswith("leadline-controller"):
        raise RefusedError("the node's name is that of a controller at the broker")
    return names[0]


def sign(request: str, node: str, settings: IssuingSettings) -> str:
    """The certificate of a node for the key in a request, both base64 of PEM. Raises RefusedError,
    SigningError."""
    try:
        pem = base64.b64decode(request, validate=True)
    except ValueError:
        raise RefusedError("the request is not base64") from None
    if len(pem) > MAX_REQUEST_BYTES:
        raise RefusedError(f"the request has more than {MAX_REQUEST_BYTES} bytes")
    with TemporaryDirectory() as folder:
        extensions, key = Path(folder, "extensions"), Path(folder, "key.pem")
        extensions.write_text(_EXTENSIONS, encoding="ascii")
        checking = ("-verify", "-noout", "-subject", "-nameopt", "RFC2253", "-pubkey")
        checked = _openssl("req", *checking, given=pem)
        # OpenSSL 3.0 succeeds with a signature that is wrong, and says so.
        if checked.returncode or b"verify OK" not in checked.stderr:
            raise RefusedError("the request is not a signed PKCS#10 request in PEM")
        shown, begin, rest = checked.stdout.partition(b"-----BEGIN")
        public, end, after = rest.partition(b"-----END PUBLIC KEY-----")
        if (shown + after).split() != [f"subject=CN={node}".encode()] or not end:
            raise RefusedError(f"expected the subject CN={node} and nothing else")
        key.write_bytes(begin + public + end + b"\n")
        signed = _openssl(
            *("x509", "-new", "-force_pubkey", key, "-subj", f"/CN={node}"),
            *("-CA", settings.authority_cert_file, "-CAkey", settings.authority_key_file),
            *("-passin", "pass:", "-set_serial", str(secrets.randbits(127) + 1)),
            *("-days", str(settings.days), "-extfile", extensions),
        )
    if signed.returncode:
        raise SigningError(" ".join(signed.stderr.decode(errors="replace").split())[:300])
    return base64.b64encode(signed.stdout).decode()


def _openssl(*arguments: str | Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run openssl. Raises SigningError."""
    try:
        return subprocess.run(  # noqa: S603 - no shell
            ["openssl", *arguments],  # noqa: S607 - of the image, or the system
            input=given,
            capture_output=True,
            timeout=_OPENSSL_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SigningError(f"openssl: {error}") from None
