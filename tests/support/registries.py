"""Image registries for tests: one in memory, and Debian's docker-registry, to which images are
pushed by HTTP: plainly, or with TLS and a login."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from leadline_controller.registry.manifests import (
    INDEXES,
    MANIFESTS,
    AbsentError,
    DeniedError,
    Index,
    Manifest,
    is_digest,
    read_answer,
)
from leadline_controller.registry.registries import Credentials, Endpoint

from tests.support.certificates import Authority
from tests.support.ports import free_port

LOGIN = Credentials("boards", "correct horse")
_BCRYPT = "$2b$04$wc13s0X1lcUGnNwjd93M6edDLd.rGUrH4lYium5x4kH70uRV7vTuS"
_START_S = 90.0


def digest(data: bytes) -> str:
    """sha256:... of these bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def manifest(*blobs: bytes) -> bytes:
    """The manifest of an image with these layers; its configuration is {}."""
    layers = [
        {
            "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
            "digest": digest(blob),
            "size": len(blob),
        }
        for blob in blobs
    ]
    config = {"mediaType": "application/vnd.oci.image.config.v1+json"}
    config |= {"digest": digest(b"{}"), "size": 2}  # type: ignore[dict-item]  # as JSON
    whole = {"schemaVersion": 2, "mediaType": MANIFESTS[0], "config": config, "layers": layers}
    return json.dumps(whole).encode()


def index(of: Mapping[str, bytes]) -> bytes:
    """The index of these manifests by architecture, such as arm64 or arm/v7."""
    entries = []
    for platform, body in of.items():
        architecture, _, variant = platform.partition("/")
        entry: dict[str, Any] = {"os": "linux", "architecture": architecture}
        entry |= {"variant": variant} if variant else {}
        entries.append(
            {
                "mediaType": MANIFESTS[0],
                "digest": digest(body),
                "size": len(body),
                "platform": entry,
            }
        )
    whole = {"schemaVersion": 2, "mediaType": INDEXES[0], "manifests": entries}
    return json.dumps(whole).encode()


@dataclass
class MemoryRegistry:
    """A Registry in memory. asked: each request. failing: raised instead of an answer."""

    login: Credentials | None = None
    asked: list[str] = field(default_factory=list)
    failing: Exception | None = None
    _manifests: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def push(self, repository: str, tag: str, body: bytes, blobs: tuple[bytes, ...] = ()) -> None:
        """Store a manifest or index under its digest, and under a tag if that is not empty."""
        del blobs
        self._manifests[repository, digest(body)] = body
        if tag:
            self._manifests[repository, tag] = body

    async def digest(self, endpoint: Endpoint) -> str | None:
        return digest(self._found("HEAD", endpoint))

    async def manifest(self, endpoint: Endpoint) -> Manifest | Index:
        reference = endpoint.reference
        return read_answer(self._found("GET", endpoint), reference if is_digest(reference) else "")

    def _found(self, method: str, endpoint: Endpoint) -> bytes:
        self.asked.append(f"{method} {endpoint.repository} {endpoint.reference}")
        if self.failing is not None:
            raise self.failing
        if self.login is not None and endpoint.credentials != self.login:
            raise DeniedError(f"{endpoint.host}: access denied")
        body = self._manifests.get((endpoint.repository, endpoint.reference))
        if body is None:
            raise AbsentError(f"{endpoint.host}: no such image")
        return body


@dataclass(frozen=True)
class DebianRegistry:
    """A running docker-registry. url: for endpoints. authority: of its certificate."""

    url: str
    authority: Path | None = None
    key: Path | None = None
    pushes_with: str = ""

    def push(self, repository: str, tag: str, body: bytes, blobs: tuple[bytes, ...] = ()) -> None:
        """As MemoryRegistry.push; the blobs are the layers."""
        for blob in (b"{}", *blobs):
            answer = self._send("POST", f"/v2/{repository}/blobs/uploads/", b"", "", repository)
            place = answer.headers["Location"]
            path = urlsplit(place).path + "?" + urlsplit(place).query
            self._send(
                "PUT",
                f"{path}&digest={digest(blob)}",
                blob,
                "application/octet-stream",
                repository,
            )
        kind = json.loads(body)["mediaType"]
        for reference in filter(None, (digest(body), tag)):
            self._send("PUT", f"/v2/{repository}/manifests/{reference}", body, kind, repository)

    def _send(self, method: str, path: str, body: bytes, kind: str, repository: str) -> Any:
        headers = {"Content-Type": kind} if kind else {}
        if self.pushes_with == "basic":
            pair = f"{LOGIN.user}:{LOGIN.password}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        elif self.pushes_with == "token" and self.key:
            token = signed_token(self.key, repository, ["pull", "push"])
            headers["Authorization"] = f"Bearer {token}"
        request = urllib.request.Request(  # noqa: S310  # of this test's registry
            f"{self.url}{path}", body, headers, method=method
        )
        return urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=context(self.authority)),
        ).open(request, timeout=90)


def context(authority: Path | None) -> ssl.SSLContext:
    """Verifies against this authority, or the system's."""
    return ssl.create_default_context(cafile=authority)


@contextmanager
def debian_registry(folder: Path, login: str = "") -> Iterator[DebianRegistry]:
    """Run docker-registry on loopback; login: "" for plain HTTP, "basic", or "token", for which a
    server of tokens runs beside it."""
    port = free_port()
    config: dict[str, Any] = {
        "version": "0.1",
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "storage")}},
        "http": {"addr": f"127.0.0.1:{port}", "secret": "of a test"},
    }
    certificate = None
    if login:
        certificate = Authority(folder / "pki").server("127.0.0.1")
        config["http"]["tls"] = {
            "certificate": str(certificate.cert_file),
            "key": str(certificate.key_file),
        }
    scheme = "https" if login else "http"
    if login == "basic":
        (folder / "htpasswd").write_text(f"{LOGIN.user}:{_BCRYPT}\n")
        config["auth"] = {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}}
    realm = None
    if login == "token" and certificate is not None:
        realm = _token_server(certificate.cert_file, certificate.key_file)
        config["auth"] = {
            "token": {
                "realm": f"https://127.0.0.1:{realm.server_port}/token",
                "service": "registry",
                "issuer": "tests",
                "rootcertbundle": str(certificate.cert_file),
            }
        }
    file = folder / "registry.json"
    file.write_text(json.dumps(config))
    process = subprocess.Popen(
        ["docker-registry", "serve", str(file)],
        stdout=subprocess.DEVNULL,
        stderr=(folder / "registry.log").open("wb"),
    )
    try:
        running = DebianRegistry(
            f"{scheme}://127.0.0.1:{port}",
            certificate.ca_file if certificate else None,
            certificate.cert_file if certificate else None,
            login,
        )
        _wait_answering(running, process, folder / "registry.log")
        yield running
    finally:
        process.terminate()
        process.wait()
        if realm is not None:
            realm.shutdown()
            realm.server_close()


def _wait_answering(registry: DebianRegistry, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + _START_S
    while True:
        assert process.poll() is None, log.read_text()
        try:
            urllib.request.build_opener(
                urllib.request.ProxyHandler({}),
                urllib.request.HTTPSHandler(context=context(registry.authority)),
            ).open(f"{registry.url}/", timeout=60).close()
        except OSError:
            assert time.monotonic() < deadline_s, log.read_text()
            time.sleep(0.05)
        else:
            return


def signed_token(cert_file: Path, repository: str, actions: list[str]) -> str:
    """A JSON web token for a repository, signed with the key beside the certificate."""
    der = ssl.PEM_cert_to_DER_cert(cert_file.read_text())
    header = {"typ": "JWT", "alg": "ES256", "x5c": [base64.b64encode(der).decode()]}
    now = int(time.time())
    access = [{"type": "repository", "name": repository, "actions": actions}]
    claims = {"iss": "tests", "sub": LOGIN.user, "aud": "registry", "jti": str(time.time_ns())}
    times = {"nbf": now - 60, "iat": now - 60, "exp": now + 300}
    signed = f"{_part(header)}.{_part({**claims, **times, 'access': access})}"
    key_file = cert_file.with_suffix(".key")
    der_signature = subprocess.run(
        ["openssl", "dgst", "-sha256", "-sign", str(key_file)],
        input=signed.encode(),
        capture_output=True,
        check=True,
    ).stdout
    return f"{signed}.{_encoded(_fixed_length(der_signature))}"


def _fixed_length(der: bytes) -> bytes:
    """An ECDSA signature of P-256, a sequence of two integers in DER, as JWS has it."""
    at, parts = 2, []
    for _ in range(2):
        length = der[at + 1]
        parts.append(int.from_bytes(der[at + 2 : at + 2 + length]).to_bytes(32))
        at += 2 + length
    return b"".join(parts)


def _part(value: object) -> str:
    return _encoded(json.dumps(value).encode())


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _token_server(cert_file: Path, key_file: Path) -> ThreadingHTTPServer:
    """Gives tokens for pulls to who knows LOGIN."""
    pair = base64.b64encode(f"{LOGIN.user}:{LOGIN.password}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the library's name
            query = parse_qs(urlsplit(self.path).query)
            right = self.headers.get("Authorization") == f"Basic {pair}"
            repository = query.get("scope", [""])[0].split(":")[1]
            token = signed_token(cert_file, repository, ["pull"]) if right else ""
            body = json.dumps({"token": token, "expires_in": 300}).encode()
            self.send_response(200 if right else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert_file, key_file)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
