"""Requests go through a proxy where Go sends them through it: the table has Go's own answers."""

import json

import pytest
from leadline_controller.parsing.proxies import ProxyError, http_proxy_for, proxy_for

from tests.support.go_answers import PROXIES

TABLE = json.loads(PROXIES.read_text("utf-8"))
PROXY = "http://proxy.lan:3128"


@pytest.mark.parametrize(("no_proxy", "direct"), TABLE["direct"])
def test_no_proxy_means_what_it_means_to_go(no_proxy: str, direct: list[str]) -> None:
    environ = {"HTTP_PROXY": PROXY, "HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}
    found = {url: proxy_for(url, environ) for url in TABLE["urls"]}
    assert [url for url, proxy in found.items() if proxy is None] == direct
    assert set(found.values()) <= {None, PROXY}


def test_drawn_lists_mean_what_they_mean_to_go() -> None:
    def found(no_proxy: str, url: str) -> str | None:
        environ = {"HTTP_PROXY": PROXY, "HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}
        return proxy_for(url, environ)

    assert len(TABLE["drawn"]) > 100
    expected = {True: None, False: PROXY}
    assert [each for each in TABLE["drawn"] if found(*each[:2]) != expected[each[2]]] == []


@pytest.mark.parametrize(("environ", "proxies"), TABLE["variables"])
def test_variables_are_read_as_go_reads_them(environ: dict[str, str], proxies: list[str]) -> None:
    asked = ("https://quay.example.org", "http://quay.example.org")
    assert [proxy_for(url, environ) for url in asked] == proxies


def test_nothing_but_http_has_a_proxy() -> None:
    assert proxy_for("ftp://quay.example.org", {"FTP_PROXY": PROXY, "HTTP_PROXY": PROXY}) is None


def test_a_client_of_http_proxies_refuses_socks_without_its_password() -> None:
    environ = {"https_proxy": "socks5://user:secret@proxy.lan:1080", "NO_PROXY": ".lan"}
    assert http_proxy_for("https://registry.lan", environ) is None
    with pytest.raises(ProxyError) as error:
        http_proxy_for("https://quay.example.org", environ)
    assert str(error.value) == (
        "HTTPS_PROXY: expected http://HOST:PORT or https://HOST:PORT, got socks5://"
    )
    assert http_proxy_for("https://quay.example.org", {"HTTPS_PROXY": PROXY}) == PROXY
