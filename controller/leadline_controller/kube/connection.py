"""The login to the API server, from a kubeconfig or from a pod's service account.

kubernetes_asyncio reads both, runs exec plugins and reads a pod's token again as it is rotated.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import yaml

from leadline_controller import __version__
from leadline_controller.kube.errors import KubeConfigError
from leadline_controller.kube.library import (
    ApiClient,
    ConfigException,
    Configuration,
    load_incluster_config,
    load_kube_config,
)

# A watch sends each object as one line, and etcd stores up to 1.5 MiB.
MAX_LINE_BYTES = 2**21


@dataclass(frozen=True, slots=True)
class Login:
    """A kubeconfig, or, without one, the service account of the controller's pod."""

    kubeconfig: Path | None = None

    async def open(self) -> ApiClient:
        """A client for this login. Raises KubeConfigError."""
        configuration = Configuration()
        # Kubernetes' own certificates often lack the key identifiers that Python 3.13 requires
        # by default. The chain and the server's name are still verified.
        configuration.disable_strict_ssl_verification = True
        await self.refresh(configuration)
        _require_verified_tls(configuration, self._source)
        try:
            client = ApiClient(configuration)
        except (OSError, ssl.SSLError) as error:
            raise KubeConfigError(f"{self._source}: certificate or key: {error}") from None
        client.user_agent = f"leadline-controller/{__version__}"
        _look_up_proxy_once(client)
        return client

    async def refresh(self, configuration: Configuration) -> None:
        """Read server and credentials again, for tokens that expire. Raises KubeConfigError."""
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

    @property
    def _source(self) -> str:
        return str(
            self.kubeconfig or "the pod's service account (kubernetes.kubeconfig is not set)"
        )


def http2_context(configuration: Configuration) -> ssl.SSLContext:
    """The TLS settings of the login's present files, with HTTP/2 as the first choice. The library
    keeps its own to itself, and speaks HTTP/1.1 alone."""
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # see Login.open
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def _look_up_proxy_once(client: ApiClient) -> None:
    """Replace the client's session by one that reads neither the environment nor ~/.netrc.

    The library's session reads both before every request, the latter in another thread, which is
    a third of a request's cost. An API server has no password in ~/.netrc."""
    rest, server = client.rest_client, urlsplit(client.configuration.host)
    if rest.proxy is None and not proxy_bypass(server.hostname or ""):
        rest.proxy = getproxies().get(server.scheme)
    connector = rest.pool_manager.connector
    rest.pool_manager.detach()
    rest.pool_manager = aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), read_bufsize=MAX_LINE_BYTES
    )


def _require_verified_tls(configuration: Configuration, source: str) -> None:
    server = urlsplit(configuration.host)
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


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
