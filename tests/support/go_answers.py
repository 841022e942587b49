"""Writes what Go's own packages answer into tables for tests, which then need no Go.

`python -m tests.support.go_answers` draws the same cases again and asks Go, of which it needs no
module but the standard library.
"""

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

CONTROLLER = Path(__file__).parents[1] / "controller"
PROXIES = CONTROLLER / "parsing" / "go_proxies.json"

_PROXIES = """
package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
)

// Go reads the environment once, so one run answers for one environment.
func main() {
	answers := []any{}
	for _, text := range os.Args[1:] {
		asked, err := url.Parse(text)
		if err != nil {
			panic(err)
		}
		proxy, err := http.ProxyFromEnvironment(&http.Request{URL: asked})
		if err != nil {
			panic(err)
		}
		if proxy == nil {
			answers = append(answers, nil)
		} else {
			answers = append(answers, proxy.String())
		}
	}
	json.NewEncoder(os.Stdout).Encode(answers)
}
"""
_PROXY = "http://proxy.lan:3128"
_K3S = "127.0.0.0/8,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,.svc,.cluster.local"  # of docs.k3s.io
_URLS = [
    *("https://127.0.0.1:6443", "https://127.9.9.9", "https://[::1]:6443", "https://localhost"),
    *("https://localhost.", "https://192.168.1.10:6443", "https://10.43.0.1", "http://10.43.0.1"),
    *("https://10.43.0.1:8443", "https://172.32.0.1", "https://registry.lan", "http://a.lan:443"),
    *("https://harbor.cluster.local", "https://Registry.LAN:5000", "https://example.org:6443"),
    *("https://example.org", "https://deep.a.example.org", "https://notexample.org"),
    *("https://[fd00::10]:6443", "https://[2001:db8::1]", "https://[::ffff:10.43.0.1]:443"),
    *("https://[::ffff:127.0.0.1]", "https://[fe80::1%25eth0]:6443", "https://example.org."),
    *("https://kubernetes.default.svc", "https://bücher.example", "https://10.43.0.1.nip.io"),
    *("https://xn--bcher-kva.example", "https://0.0.0.0", "https://localhost.localdomain"),
]
_NO_PROXIES = [
    *(_K3S, "", "*", " * ", "a,*,b", "*.", ",,", ".", "org", "svc", "lan", "localhost", ":443"),
    *("10.43.0.1", "10.43.0.1:443", "10.43.0.1:8443", "10.43.0.1:80", "010.43.0.1", "10.43"),
    *("0.0.1", ".0.1", "10.*", "10.43.0.1/16", "10.0.0.0/255.0.0.0", "10.0.0.0/08", "10.0.0.0/33"),
    *("10.0.0.0/", "/8", "0.0.0.0/0", "10.43.0.1 192.168.1.10", "fd00::10", "[fd00::10]"),
    *("[fd00::10]:6443", "[fd00::10]:443", "fd00::/8", "2001:db8::/32", "::/0", "::1", "[]:443"),
    *("fe80::/10", "fe80::1", "fe80::1%eth0", "::ffff:10.0.0.0/104", "::ffff:10.43.0.1"),
    *("[::ffff:10.43.0.1]:443", "::ffff:10.43.0.1:443", "example.org", ".example.org"),
    *("*.example.org", "*example.org", "..example.org", "example.org:6443", "example.org:"),
    *(".example.org:6443", "*.example.org:443", "EXAMPLE.ORG , registry.lan ", "example.org."),
    *("https://example.org", "registry.lan:5000", "registry.lan:443", "bücher.example"),
    *(".bücher.example", "xn--bcher-kva.example", "a.example.org", "localhost.localdomain:6443"),
]
_VARIABLES = [
    *({}, {"ALL_PROXY": _PROXY}, {"https_proxy": _PROXY}, {"http_proxy": _PROXY}),
    {"HTTPS_PROXY": _PROXY, "https_proxy": "http://other.lan"},
    {"HTTPS_PROXY": "", "https_proxy": "http://other.lan"},
    {"HTTP_PROXY": _PROXY, "http_proxy": "http://other.lan"},
    {"https_proxy": _PROXY, "NO_PROXY": "other.lan", "no_proxy": "quay.example.org"},
    {"https_proxy": _PROXY, "NO_PROXY": "", "no_proxy": "quay.example.org"},
    {"https_proxy": _PROXY, "NO_PROXY": "quay.example.org", "no_proxy": ""},
    *(
        {"HTTPS_PROXY": proxy}
        for proxy in (
            *("proxy.lan:3128", "proxy.lan", "127.0.0.1:3128", "10.0.0.1", "proxy.lan:3128/path"),
            *("http://user:pass@proxy.lan:3128", "user:p%40ss@proxy.lan:3128", "//proxy.lan:3128"),
            *("HTTP://proxy.lan:3128/", "https://proxy.lan", "socks5://proxy.lan:1080"),
            *("socks5h://proxy.lan", "ftp://proxy.lan", "[::1]:3128", "http://[::1]:3128"),
            *("http://proxy:port", " http://proxy.lan", "http://user:p#ss@proxy.lan:3128"),
            *("http://proxy.lan\n", "http://us[er@proxy.lan", "1http://proxy.lan", "http://"),
        )
    ),
]


def _run(program: Path, words: Sequence[str], environ: dict[str, str]) -> Any:
    done = subprocess.run([program, *words], env=environ, capture_output=True, check=True)
    return json.loads(done.stdout)


def _built(source: str, folder: Path) -> Path:
    (folder / "main.go").write_text(source)
    subprocess.run(["go", "build", "-o", folder / "main", folder / "main.go"], check=True)
    return folder / "main"


def _host(random: Random) -> str:
    kind = random.randrange(3)
    if kind == 0:
        return ".".join(str(random.choice((0, 1, 10, 127, 168, 172, 192))) for _ in range(4))
    if kind == 1:
        labels = ("a", "b", "svc", "lan", "local", "x-y", "10")
        return ".".join(random.choice(labels) for _ in range(random.randint(1, 4)))
    return random.choice(("fd00::", "2001:db8::", "fe80::", "::ffff:10.0.0.")) + str(
        random.randrange(9)
    )


def _entry(host: str, random: Random) -> str:
    parent = host.partition(".")[2] or host
    bits = random.choice((0, 8, 12, 16, 24, 32, 64, 104, 128))
    bracketed = f"[{host}]" if ":" in host else host
    port = random.choice((443, 80, 6443))
    return random.choice(
        (
            host,
            f".{host}",
            f"*.{parent}",
            f".{parent}",
            parent,
            f"{host}/{bits}",
            f"{bracketed}:{port}",
        )
    )


def _drawn(random: Random) -> tuple[str, str]:
    """A NO_PROXY and a URL that it may mean."""
    host = _host(random)
    hosts = [host if random.random() < 0.6 else _host(random) for _ in range(random.randint(1, 3))]
    port = random.choice(("", ":443", ":6443", ":80"))
    scheme = random.choice(("http", "https"))
    url = f"{scheme}://{f'[{host}]' if ':' in host else host}{port}"
    return ",".join(_entry(each, random) for each in hosts), url


def proxies() -> dict[str, Any]:
    """direct: NO_PROXY -> those of `urls` that go directly. variables: the environment, and the
    proxies of an https and an http URL. drawn: a NO_PROXY, a URL, whether it goes directly."""
    random = Random(28)
    both = {"HTTPS_PROXY": _PROXY, "HTTP_PROXY": _PROXY}
    asked = ["https://quay.example.org", "http://quay.example.org"]
    with tempfile.TemporaryDirectory() as folder:
        program = _built(_PROXIES, Path(folder))
        direct = {}
        for no_proxy in _NO_PROXIES:
            answers = _run(program, _URLS, {**both, "NO_PROXY": no_proxy})
            direct[no_proxy] = [url for url, proxy in zip(_URLS, answers, strict=True) if not proxy]
        return {
            "urls": _URLS,
            "direct": direct,
            "variables": [[environ, _run(program, asked, environ)] for environ in _VARIABLES],
            "drawn": [
                [no_proxy, url, _run(program, [url], {**both, "NO_PROXY": no_proxy}) == [None]]
                for no_proxy, url in (_drawn(random) for _ in range(200))
            ],
        }


def _write(path: Path, table: dict[str, Any]) -> None:
    """One case a line."""
    parts = []
    for name, rows in table.items():
        pairs = [[key, row] for key, row in rows.items()] if isinstance(rows, dict) else rows
        lines = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in pairs)
        parts.append(f"{json.dumps(name)}: [\n{lines}\n]")
    path.write_text("{" + ",\n".join(parts) + "}\n", "utf-8")


if __name__ == "__main__":
    _write(PROXIES, proxies())
