"""Certificates that people make by hand, with as few words to openssl as will do: agent and
controller take them under every Python, and refuse what they always refused."""

import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import leadline_agent.tls
import leadline_controller.tls
import pytest

from tests.support.certificates import Authority

BOTH = pytest.mark.parametrize(
    "tls_context", [leadline_agent.tls.tls_context, leadline_controller.tls.tls_context]
)
Making = Callable[[Path], ssl.SSLContext]


@pytest.fixture(autouse=True)
def _as_python_3_13(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it asks for by default."""
    before = ssl.create_default_context

    def strict(
        purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH, *, cafile: Path | None = None
    ) -> ssl.SSLContext:
        context = before(purpose, cafile=cafile)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of ca.pem and of server.pem with its key, for broker.lan."""
    folder = tmp_path_factory.mktemp("by-hand")
    (folder / "names").write_text("subjectAltName=DNS:broker.lan\n")
    new_key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout"
    for command in (
        f"req -x509 {new_key} ca.key -subj /CN=home -days 30 -out ca.pem",
        f"req {new_key} server.key -subj /CN=broker.lan -out server.csr",
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 "
        "-extfile names -out server.pem",
    ):
        argv = ["openssl", *command.split()]
        subprocess.run(argv, cwd=folder, check=True, capture_output=True)
    return folder


@BOTH
@pytest.mark.parametrize("trusted", ["ca.pem", "server.pem"])
def test_certificates_made_by_hand_are_taken(
    tls_context: Making, trusted: str, by_hand: Path
) -> None:
    assert handshake(tls_context(by_hand / trusted), by_hand, "broker.lan") == ""


@BOTH
def test_another_name_or_authority_is_refused(
    tls_context: Making, by_hand: Path, tmp_path: Path
) -> None:
    assert "Hostname mismatch" in handshake(tls_context(by_hand / "ca.pem"), by_hand, "other.lan")
    other = Authority(tmp_path / "other").ca_file
    assert "unable to get local issuer" in handshake(tls_context(other), by_hand, "broker.lan")


def handshake(client_context: ssl.SSLContext, folder: Path, name: str) -> str:
    """Why the client refuses the server of this folder, "" if it does not."""
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(folder / "server.pem", folder / "server.key")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for end in (client, server, client):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
    return ""
