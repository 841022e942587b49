"""Who is told of problems, and how often."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from leadline_controller.parsing.addresses import is_loopback
from leadline_controller.parsing.fields import FieldError
from leadline_controller.parsing.settings import readable_file, secret_line, setting
from leadline_controller.tls import tls_context

IN_URL = "{token}"


@dataclass(frozen=True, slots=True)
class Token:
    """A secret, which is not shown."""

    text: str = field(repr=False)


def _token(text: str) -> Token:
    token = secret_line(Path(text))
    if not token or not token.isascii():
        raise ValueError(f"{text}: expected one line with the token")
    return Token(token)


def _url(text: str) -> str:
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname or "@" in url.netloc or url.fragment:
        raise ValueError("expected a URL such as https://ntfy.example.com/topic, without a login")
    return text


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """Who is told of problems, and how often."""

    kind: Literal["webhook", "ntfy", "gotify"] = setting(
        "webhook", "what [notifications](notifications.md) of problems are sent to, at `notify.url`"
    )
    url: str | None = setting(
        None,
        "its URL: for ntfy with the topic at its end, for Gotify the server's. `{token}` in it "
        "stands for the token of the file",
        read=_url,
    )
    token: Token | None = setting(
        None,
        "a file with a token that only the controller may read; unless it is in the URL, it is "
        "sent as ntfy and Gotify want it, and to a webhook as `Authorization: Bearer`",
        name="token_file",
        read=_token,
    )
    ca_file: Path | None = setting(
        None, "an authority that is trusted besides the system's", read=readable_file
    )
    plaintext: bool = setting(
        False, "true: a token may go over http, for a network that nobody else uses"
    )
    map_url: str | None = setting(
        None, "what a tap on a notification opens, such as the map", read=_url
    )
    per_hour: int = setting(6, "how many are sent in an hour at most", least=1, most=60)
    after_s: float = setting(
        60.0,
        "how long a problem lasts before it is told; its end is told five times as long after it",
        least=10,
        most=86_400,
    )

    def context(self) -> ssl.SSLContext:
        """What verifies the receiver. Raises OSError."""
        context = tls_context()
        if self.ca_file is not None:
            context.load_verify_locations(self.ca_file)
        return context

    def check(self) -> None:
        """Raises FieldError for what does not go together."""
        url = urlsplit(self.url or "")
        if self.kind == "ntfy" and self.url and not url.path.rpartition("/")[2]:
            raise FieldError("notify.url: expected a topic at its end, as in https://ntfy.sh/topic")
        if self.token is None and self.url and (self.kind == "gotify" or IN_URL in self.url):
            raise FieldError("notify.token_file: expected a file with the token")
        is_safe = self.plaintext or url.scheme != "http" or is_loopback(url.hostname or "")
        if self.token and not is_safe:
            raise FieldError(
                "notify.url: expected https, because a token goes to another machine (or "
                "plaintext = true, where nobody else is on the network)"
            )
        if self.ca_file is None:
            return  # the system's authorities take 30 ms to read
        try:
            self.context()
        except OSError:
            raise FieldError(f"notify.ca_file: {self.ca_file}: expected a PEM file") from None
