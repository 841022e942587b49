"""Writes what Go's own packages answer into tables for tests, which then need no Go.

`python -m tests.support.go_answers` draws the same cases again and asks Go: its standard library,
and kubelet's own package in the module of the test control plane.
"""

import json
import subprocess
import tempfile
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

CONTROLLER = Path(__file__).parents[1] / "controller"
PROXIES = CONTROLLER / "parsing" / "go_proxies.json"
REWRITES = CONTROLLER / "registry" / "go_rewrites.json"
LOGINS = CONTROLLER / "registry" / "kubelet_logins.json"
KUBERNETES = Path(__file__).parents[1] / "kube" / "controlplane"

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

_REWRITES = """
package main

import (
	"encoding/json"
	"os"
	"regexp"
)

func main() {
	var cases [][3]string
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		panic(err)
	}
	answers := []any{}
	for _, each := range cases {
		if pattern, err := regexp.Compile(each[0]); err == nil {
			answers = append(answers, pattern.ReplaceAllString(each[2], each[1]))
		} else {
			answers = append(answers, nil)
		}
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	encoder.Encode(answers)
}
"""
_WRITTEN = [  # pattern and template as people write them
    *(("(.*)", "dockerhub/$1"), ("^(.*)$", "dockerhub/$1"), (".*", "proxy/$0"), ("(.*)", "$1/x")),
    *(("^(?P<x>.*)$", "proxy/${x}"), ("^(?<x>.*)$", "proxy/$x"), ("(?P<x>.*)", "proxy/$x/y")),
    *(("^", "proxy/"), ("$", "/mirror"), ("", "-"), ("/", "-"), ("(.*)", "quay/$1x")),
    *(("^library/([[:alnum:]]+)$", "official/$1"), ("^(?i:LIBRARY)/(.*)", "a/$1"), ("(", "x")),
    *(("^rancher/(.*)", "mirrorproject/rancher-images/$1"), ("(a)|(b)", "[$1|$2]"), ("x*", "-")),
    *(
        (".*?", "a"),
        ("a*?", "<$0>"),
        (r"\b", "|"),
        (r"\z", "/end"),
        ("(?=a)", "x"),
        (r"(a)\1", "x"),
    ),
    *(("(.*)", "$$1"), ("(.*)", "$"), ("(.*)", "${1"), ("(.*)", "$-$1-$"), ("(.*)", "${}$1")),
    *(("(.*)", "$01"), ("(.*)", "$2"), ("(.*)", "${1}0"), ("(.*)", "$10"), ("(.*)", "$_")),
    *(
        (r"\pL+", "<$0>"),
        ("[^/]+$", "x"),
        ("(?s).", "."),
        ("a{1001}", "x"),
        ("(?P<n>a)(?P<n>b)", "x"),
    ),
]


def _run(program: Path, words: Sequence[str], environ: dict[str, str], asked: Any = None) -> Any:
    done = subprocess.run(
        [program, *words],
        env=environ,
        input=json.dumps(asked).encode(),
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout)


def _built(source: str, folder: Path, module: Path | None = None) -> Path:
    """A program; module: whose packages it may import."""
    (folder / "main.go").write_text(source)
    where = ["-C", str(module)] if module else []
    command = ["go", "build", *where, "-o", str(folder / "main"), str(folder / "main.go")]
    subprocess.run(command, check=True)
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


_TEXTS = ("library/nginx", "rancher/pause", "a", "ab/ba", "team-a/app_1/web.2", "bbb", "aa/aab")


def _pattern(random: Random, depth: int = 3) -> str:
    """A pattern, of which a few are none."""
    if depth == 0:
        atoms = ("a", "b", "/", ".", "[a-z]", "[^/]", "library", r"\w", r"\d", "", "-", "n")
        return random.choice(atoms)
    one, two = _pattern(random, depth - 1), _pattern(random, depth - 1)
    forms = (
        *(one + two, one + two, f"({one})", f"({one})", f"({one}){two}", f"(?:{one})|{two}"),
        *(f"(?:{one})*", f"(?:{one})*?", f"(?:{one})+", f"(?:{one})?{two}", f"^{one}", f"{one}$"),
        *(f"(?P<x>{one}){two}", f"({one})|({two})", f"({one}", f"{one}{{2}}", rf"\b{one}"),
    )
    return random.choice(forms)


def _template(random: Random) -> str:
    parts = (
        *("$0", "$1", "${1}", "$2", "${2}", "$x", "${x}", "$1x", "${x}y", "$$", "$", "${", "$3"),
        *("a", "/", "proxy/", "-", "1", "}", "", "\\1", "é$1é"),
    )
    return "".join(random.choice(parts) for _ in range(random.randint(1, 4)))


def rewrites() -> dict[str, Any]:
    """rewrites: a pattern, a template, a text, what Go makes of it, null if it is no pattern."""
    random = Random(21)
    asked = [[*pair, text] for pair in _WRITTEN for text in _TEXTS[:2]]
    asked += [[_pattern(random), _template(random), random.choice(_TEXTS)] for _ in range(300)]
    with tempfile.TemporaryDirectory() as folder:
        answers = _run(_built(_REWRITES, Path(folder)), [], {}, asked)
    return {"rewrites": [[*each, made] for each, made in zip(asked, answers, strict=True)]}


_LOGINS = """
package main

import (
	"encoding/json"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/credentialprovider"
	"k8s.io/kubernetes/pkg/credentialprovider/secrets"
)

func main() {
	var cases []struct {
		Secrets []map[string]any
		Image   string
	}
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		panic(err)
	}
	answers := [][]string{}
	for _, each := range cases {
		all := []v1.Secret{}
		for _, auths := range each.Secrets {
			text, _ := json.Marshal(map[string]any{"auths": auths})
			all = append(all, v1.Secret{
				Type: v1.SecretTypeDockerConfigJson,
				Data: map[string][]byte{v1.DockerConfigJsonKey: text},
			})
		}
		none := &credentialprovider.BasicDockerKeyring{}
		keyring, err := secrets.MakeDockerKeyring(all, none)
		if err != nil {
			panic(err)
		}
		users := []string{}
		found, _ := keyring.Lookup(each.Image)
		for _, login := range found {
			users = append(users, login.Username+":"+login.Password)
		}
		answers = append(answers, users)
	}
	json.NewEncoder(os.Stdout).Encode(answers)
}
"""
_IMAGES = [  # as kubelet knows them, without tag or digest
    *("harbor.example.org/team-a/app", "harbor.example.org/team-ab/app", "docker.io/library/nginx"),
    *(
        "harbor.example.org/team-b/x/app",
        "registry.example.org/app",
        "reg:5000/a/b",
        "docker.io/me/x",
    ),
    *(
        "a.b.example.org/app",
        "example.org/app",
        "[fd00::1]:5000/web",
        "10.0.0.5/web",
        "localhost/web",
    ),
    *("harbor.example.org:8443/team-a/app", "quay.io/team/app"),
]
_KEYS = [
    *("harbor.example.org", "harbor.example.org/team-a", "harbor.example.org/team-b", "quay.io/"),
    *("https://harbor.example.org/team-a/", "http://harbor.example.org", "*.example.org", "*"),
    *("*.example.org/team-a", "*.*.example.org", "har*.example.org", "*.org", "example.*", "*.io"),
    *("https://index.docker.io/v1/", "index.docker.io", "docker.io", "docker.io/me", "reg:*"),
    *("https://index.docker.io/v1", "registry-1.docker.io", "https://docker.io/v2/", "reg:5000"),
    *(
        "https://harbor.example.org/v2/team-a",
        "harbor.example.org/team-a/app",
        "*:5000",
        "localhost",
    ),
    *("harbor.example.org:8443", "*.example.org:8443", "harbor.example.org:443", "[fd00::1]:5000"),
    *("10.0.0.5", "10.0.0.*", "reg:5000/a/b", "h*r.ex*e.org", "**.example.org", "user@quay.io"),
    *(
        "Harbor.example.org",
        "harbor.example.org/Team-a",
        "harbor.example.org/team%2Da",
        "quay.io/t",
    ),
]


def _entry_of(user: str, random: Random) -> dict[str, str]:
    """One of the forms that an entry may have."""
    pair = b64encode(f"{user}:p:{user}".encode()).decode()
    forms: tuple[dict[str, str], ...] = (
        *({"username": user, "password": f"p:{user}"}, {"auth": pair}, {"auth": pair.rstrip("=")}),
        *({"username": "x", "password": "y", "auth": pair}, {"username": user, "email": "a@b"}),
    )
    return random.choice(forms)


def logins() -> dict[str, Any]:
    """logins: the auths of some secrets, an image, and the user:password that kubelet tries."""
    random = Random(10)
    asked = []
    for number in range(150):
        image = random.choice(_IMAGES)
        domain = image.partition("/")[0].rpartition(".")[2][:3]
        near = [key for key in _KEYS if domain in key or "*" in key]
        secrets = [
            {key: _entry_of(f"{number}-{i}-{j}", random) for j, key in enumerate(keys)}
            for i in range(random.randint(1, 2))
            if (keys := random.sample(near, min(len(near), random.randint(1, 4))))
        ]
        asked.append({"Secrets": secrets, "Image": image})
    with tempfile.TemporaryDirectory() as folder:
        program = _built(_LOGINS, Path(folder), KUBERNETES)
        runs = [_run(program, [], {}, asked) for _ in range(16)]
    # Of two keys of one secret that mean the same, kubelet tries now this one first, now that one.
    cases = [
        (each, users[0])
        for each, *users in zip(asked, *runs, strict=True)
        if all(user == users[0] for user in users)
    ]
    return {"logins": [[each["Secrets"], each["Image"], users] for each, users in cases]}


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
    _write(REWRITES, rewrites())
    _write(LOGINS, logins())
