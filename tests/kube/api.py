"""The few Kubernetes calls that tests make to set a scene and to look at the outcome.

Tests must not judge the controller's Kubernetes client by that same client, so this one is the
standard library alone.
"""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from http import HTTPStatus
from http.client import HTTPSConnection
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

TIMEOUT_S = 90.0
KEPT_S = 60.0
MERGE_PATCH = "application/merge-patch+json"


class ApiError(Exception):
    """The server said no; `code` is its HTTP status."""

    def __init__(self, code: int, answer: str) -> None:
        """Keep the code and show the answer."""
        super().__init__(f"{code}: {answer}")
        self.code = code


class Api:
    """One cluster, as the user of a kubeconfig's current context sees it.

    Every call raises ApiError for an answer that is an HTTP error, and OSError for none.
    """

    def __init__(self, kubeconfig: Path) -> None:
        """Read the server, its certificate and the user's token or certificate."""
        config = yaml.safe_load(kubeconfig.read_text())
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
        self._server = urlsplit(str(cluster["server"])).netloc
        self._headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
        self._tls = ssl.create_default_context(
            cadata=_text(cluster, "certificate-authority", kubeconfig)
        )
        if certificate := _text(user, "client-certificate", kubeconfig):
            key = _text(user, "client-key", kubeconfig) or ""
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as pair:
                pair.write(certificate + key)
                pair.flush()
                self._tls.load_cert_chain(pair.name)

    def get(self, path: str) -> Any:
        """Return the object or list at `path`, such as /api/v1/nodes/n1."""
        return json.loads(self.text("GET", path))

    def create(self, path: str, body: dict[str, Any]) -> Any:
        """Post `body` to a collection or subresource and return the answer."""
        return json.loads(self.text("POST", path, body))

    def patch(self, path: str, body: dict[str, Any]) -> Any:
        """Merge `body` into the object at `path` and return the object."""
        return json.loads(self.text("PATCH", path, body, MERGE_PATCH))

    def delete(self, path: str) -> None:
        """Delete the object at `path` at once, without a grace period."""
        self.text("DELETE", path, {"gracePeriodSeconds": 0})

    def text(
        self,
        method: str,
        path: str,
        body: object = None,
        content_type: str = "application/json",
    ) -> str:
        """Return what the server answers, as it is: /readyz answers no JSON."""
        with self._connection() as client:
            content = None if body is None else json.dumps(body)
            client.request(method, path, content, {**self._headers, "Content-Type": content_type})
            answer = client.getresponse()
            text = answer.read().decode()
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise ApiError(answer.status, text)
        return text

    def watch(self, path: str, version: str) -> Iterator[Any]:
        """Yield each change of a collection after `version`, until the server ends it."""
        with closing(self._connect()) as client:
            query = f"watch=1&allowWatchBookmarks=false&resourceVersion={version}"
            client.request("GET", f"{path}?{query}", headers=self._headers)
            answer = client.getresponse()
            if answer.status >= HTTPStatus.BAD_REQUEST:
                raise ApiError(answer.status, answer.read().decode())
            for line in answer:
                yield json.loads(line)

    def _connection(self) -> AbstractContextManager[HTTPSConnection]:
        """Return a connection for one call: another call may be to a server that restarted."""
        return closing(self._connect())

    def _connect(self) -> HTTPSConnection:
        return HTTPSConnection(self._server, timeout=TIMEOUT_S, context=self._tls)

    def add_node(self, node: dict[str, Any]) -> Any:
        """Make `node` with exactly its own taints.

        The API server taints every new node as not ready, which a controller lifts in a cluster.
        """
        made = self.create("/api/v1/nodes", node)
        taints = {"spec": {"taints": node["spec"]["taints"]}}
        return self.patch(f"/api/v1/nodes/{made['metadata']['name']}", taints)


class BulkApi(Api):
    """The same for thousands of calls: each thread keeps its connection, until a call fails or the
    thread makes none for a while: the server leaves a connection that is idle for 90 s."""

    def __init__(self, kubeconfig: Path) -> None:
        """Read the kubeconfig as Api does."""
        super().__init__(kubeconfig)
        self._of_thread = threading.local()

    @contextmanager
    def _connection(self) -> Iterator[HTTPSConnection]:
        kept = self._of_thread
        if time.monotonic() > getattr(kept, "until_s", -inf):
            kept.connection = self._connect()
        kept.until_s = -inf
        yield kept.connection
        kept.until_s = time.monotonic() + KEPT_S


def authority_of(kubeconfig: Path) -> str:
    """The authority of the API server's certificate, in PEM."""
    (entry,) = yaml.safe_load(kubeconfig.read_text())["clusters"]
    return _text(entry["cluster"], "certificate-authority", kubeconfig) or ""


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _text(section: dict[str, Any], key: str, kubeconfig: Path) -> str | None:
    if data := section.get(f"{key}-data"):
        return base64.b64decode(data).decode()
    if file := section.get(key):
        return (kubeconfig.parent / str(file)).read_text()
    return None
