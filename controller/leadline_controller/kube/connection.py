"""Where the API server is and how to prove who we are, from a kubeconfig or from inside a pod.

kubernetes_asyncio reads both, runs exec plugins and re-reads a pod's token as it is rotated.
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

# An object of a watch is a line, and etcd takes 1.5 MiB.
_LONGEST_LINE_BYTES = 2**21


@dataclass(frozen=True, slots=True)
class Login:
    """A kubeconfig and one of its contexts (None: the current one), or, without a kubeconfig,
    the service account of the pod that we run in."""

    kubeconfig: Path | None = None
    context: str | None = None

    async def open(self) -> ApiClient:
        """A client for this login. Raises KubeConfigError."""
        configuration = Configuration()
        # Kubernetes' own certificates often lack the key identifiers that Python 3.13 asks for
        # by default. The chain and the server's name are verified all the same.
        configuration.disable_strict_ssl_verification = True
        await self.refresh(configuration)
        _refuse_unverified(configuration, self._place())
        try:
            client = ApiClient(configuration)
        except (OSError, ssl.SSLError) as error:
            raise KubeConfigError(f"{self._place()}: certificate or key: {error}") from None
        client.user_agent = f"leadline-controller/{__version__}"
        _without_netrc(client)
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
                    context=self.context,
                    client_configuration=configuration,
                    persist_config=False,
                )
        except (ConfigException, OSError, ValueError, TypeError, AttributeError) as error:
            raise KubeConfigError(f"{self._place()}: can't log in: {_one_line(error)}") from None
        except yaml.YAMLError as error:
            raise KubeConfigError(f"{self._place()}: not YAML: {_one_line(error)}") from None

    def _place(self) -> str:
        return str(
            self.kubeconfig or "the pod's service account (kubernetes.kubeconfig is not set)"
        )


def _without_netrc(client: ApiClient) -> None:
    """Have the environment's proxy looked up once. The library has aiohttp do that before every
    request, and read ~/.netrc in another thread: an API server has no password there, and a
    third of what a request costs goes into it."""
    rest, server = client.rest_client, urlsplit(client.configuration.host)
    if rest.proxy is None and not proxy_bypass(server.hostname or ""):
        rest.proxy = getproxies().get(server.scheme)
    connector = rest.pool_manager.connector
    rest.pool_manager.detach()
    rest.pool_manager = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=_LONGEST_LINE_BYTES,
    )


def _refuse_unverified(configuration: Configuration, place: str) -> None:
    server = urlsplit(configuration.host)
    if not configuration.verify_ssl:
        raise KubeConfigError(
            f"{place}: insecure-skip-tls-verify is set: remove it and give "
            "certificate-authority-data instead"
        )
    local = server.hostname in ("localhost", "127.0.0.1", "::1")
    if server.scheme != "https" and not local:
        raise KubeConfigError(
            f"{place}: cluster.server: expected https://HOST, got {configuration.host!r}"
        )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
