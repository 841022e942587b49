"""Sends a message as a webhook, ntfy or Gotify takes it."""

import os
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp

from leadline_controller import __version__
from leadline_controller.notifications.settings import IN_URL, NotifySettings
from leadline_controller.notifications.told import Message
from leadline_controller.parsing.proxies import ProxyError, http_proxy_for

_NTFY = {"error": (4, "rotating_light"), "warning": (3, "warning"), "over": (2, "white_check_mark")}
_GOTIFY = {"error": 8, "warning": 5, "over": 2}
_MOST_ERROR = 200


class NotSentError(Exception):
    """A message that has not arrived, as far as is known; str() is one line, without a secret."""


class Receiver:
    """Where messages go. name: its kind and host, without the path, which may be a secret."""

    def __init__(self, settings: NotifySettings, url: str) -> None:
        """url: the settings', which is there. Raises OSError."""
        token = settings.token.text if settings.token else ""
        self._kind, self._map_url = settings.kind, settings.map_url
        self._url = url.replace(IN_URL, quote(token))
        self._token = "" if IN_URL in url else token
        self._tls = settings.context()
        self.name = f"{settings.kind} at {urlsplit(url).netloc}"

    async def send(self, message: Message, limit_s: float) -> None:
        """One request, no redirect. Raises NotSentError within `limit_s`."""
        if limit_s <= 0:  # which aiohttp takes for no limit
            raise NotSentError("no time is left")
        url, headers, body = self._request(message)
        try:
            # It is not asked often enough to keep a connection.
            async with (
                aiohttp.ClientSession(
                    timeout=aiohttp.ClientTimeout(total=limit_s),
                    headers={"User-Agent": f"leadline-controller/{__version__}", **headers},
                ) as session,
                session.post(
                    url,
                    json=body,
                    allow_redirects=False,
                    ssl=self._tls,
                    proxy=http_proxy_for(url, os.environ),
                ) as response,
            ):
                status = response.status
        except TimeoutError:
            raise NotSentError(f"no answer within {limit_s:.0f} s") from None
        except (aiohttp.ClientConnectorError, ProxyError) as error:
            raise NotSentError(str(error)[:_MOST_ERROR]) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:  # their texts may have the URL
            raise NotSentError(f"the connection failed ({type(error).__name__})") from None
        if 300 <= status < 400:
            raise NotSentError(f"it redirects (HTTP status {status}); set the URL where it leads")
        if not 200 <= status < 300:
            raise NotSentError(f"it answered with HTTP status {status}")

    def _request(self, message: Message) -> tuple[str, dict[str, str], dict[str, Any]]:
        """URL, headers and body."""
        body: dict[str, Any] = {"title": message.title, "message": message.text}
        bearer = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        match self._kind:
            case "ntfy":  # JSON goes to the server, not to the topic
                server, _, topic = self._url.rpartition("/")
                priority, tag = _NTFY[message.severity]
                click = {"click": self._map_url} if self._map_url else {}
                ntfy = {"topic": topic, "priority": priority, "tags": [tag]}
                return f"{server}/", bearer, body | ntfy | click
            case "gotify":
                body["priority"] = _GOTIFY[message.severity]
                if self._map_url:
                    tap = {"click": {"url": self._map_url}}
                    body["extras"] = {"client::notification": tap}
                url = f"{self._url.rstrip('/')}/message"
                return url, {"X-Gotify-Key": self._token} if self._token else {}, body
        kinds = sorted({kind for kind, _ in message.changes})
        more = {"severity": message.severity, "kinds": kinds, "url": self._map_url}
        return self._url, bearer, {**body, "text": f"{message.title}\n{message.text}", **more}
