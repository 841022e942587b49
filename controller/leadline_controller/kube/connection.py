"""The login to the API server, from a kubeconfig or from a pod's service account.

kubernetes_asyncio reads both, runs exec plugins and reads a pod's token again as it is rotated.
transport.py connects.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from leadline_controller.kube.errors import KubeConfigError
from leadline_controller.kube.library import (
    ConfigException,
    Configuration,
    load_incluster_config,
    load_kube_config,
)
from leadline_controller.kube.transport import Server
from leadline_controller.parsing.proxies import proxy_for


@dataclass(frozen=True, slots=True)
class Login:
    """A kubeconfig, or, without one, the service account of the controller's pod."""

    kubeconfig: Path | None = None

    async def open(self) -> Configuration:
        """Server and credentials, as they are now: tokens and certificates expire. Raises
        KubeConfigError."""
        configuration = Configuration()
        try:
            if self.kubeconfig is None:
                load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # the library leaves it untyped
            elif not self.kubeconfig.is_file():
                raise KubeConfigError(f"{self.kubeconfig}: no such kubeconfig file")
            else:
                await load_kube_config(
                    config_file=str(self.kubeconfig),
                    client_configuration=configuration,
                    persist_config=False,
                )
        except (ConfigException, OSError, ValueError, TypeError, AttributeError) as error:
            raise KubeConfigError(f"{self._source}: can't log in: {_one_line(error)}") from None
        except yaml.YAMLError as error:
            raise KubeConfigError(f"{self._source}: not YAML: {_one_line(error)}") from None
        _require_verified_tls(configuration, self._source)
        return configuration

    @property
    def _source(self) -> str:
        return str(
            self.kubeconfig or "the pod's service account (kubernetes.kubeconfig is not set)"
        )


async def token_of(configuration: Configuration) -> str:
    """The value of the header field Authorization, "" without a token. A pod's token is read
    again as it is rotated. Raises KubeConfigError."""
    try:
        token = str(await configuration.get_api_key_with_prefix("BearerToken") or "").strip()
    except (ConfigException, OSError, ValueError) as error:
        raise KubeConfigError(f"can't read the token: {_one_line(error)}") from None
    if not (token.isascii() and token.isprintable()):
        raise KubeConfigError("the token has characters that no token has: write it again")
    return token


def server_of(configuration: Configuration, environ: Mapping[str, str]) -> Server:
    """Where to connect, and by which certificates. environ: may name a proxy."""
    url = str(configuration.host)
    return Server(
        url,
        ca_file=configuration.ssl_ca_cert or None,
        cert_file=configuration.cert_file or None,
        key_file=configuration.key_file or None,
        name=configuration.tls_server_name or None,
        proxy=configuration.proxy or proxy_for(url, environ),
    )


def _require_verified_tls(configuration: Configuration, source: str) -> None:
    try:
        server = urlsplit(configuration.host)
        _ = server.port  # which is read only now
    except ValueError as error:
        raise KubeConfigError(f"{source}: cluster.server: {error}") from None
    if not configuration.verify_ssl:
        raise KubeConfigError(
            f"{source}: insecure-skip-tls-verify is set: remove it and give "
            "certificate-authority-data instead"
        )
    local = server.hostname in ("localhost", "127.0.0.1", "::1")
    if server.scheme != "https" and not local:
        raise KubeConfigError(
            f"{source}: cluster.server: expected https://HOST, got {configuration.host!r}"
        )
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if configuration.ssl_ca_cert:
            context.load_verify_locations(configuration.ssl_ca_cert)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
    except (OSError, ssl.SSLError) as error:
        raise KubeConfigError(f"{source}: certificate or key: {error}") from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
