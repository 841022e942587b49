"""Runs released etcd and kube-apiserver binaries the way the Go control plane runs its own.

Same arguments, same files, same end: the launcher need not know which of the two it started.
It runs as a process of its own, and only with the standard library, because the two servers must
end with the test run even when that is killed: this process sees its standard input close.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import secrets
import select
import signal
import socket
import ssl
import string
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

FLAGS = Path(__file__).parent / "controlplane" / "kube-apiserver.flags"
POLL_S = 0.1
STOP_S = 10.0
# Runs a program that the kernel ends with the process that starts it. A function before exec would
# run in a copy of a process with many threads, where it may abort.
DYING_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")


def main() -> None:
    """Serve until a signal ends it; exit 1 with one line if a server ends before."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--etcd", type=Path, required=True)
    parser.add_argument("--kube-apiserver", type=Path, required=True)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--until-stdin-closes", action="store_true")
    given = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    tied = given.until_stdin_closes
    _serve(given.etcd, given.kube_apiserver, given.dir.absolute(), given.port, tied)


def _serve(etcd: Path, kube_apiserver: Path, folder: Path, port: int, tied: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    kubeconfig = folder / "kubeconfig"
    kubeconfig.unlink(missing_ok=True)
    token = _admin_token(folder / "tokens.csv")
    etcd_url = f"http://127.0.0.1:{_free_port()}"
    port = port or _free_port()
    server = f"https://127.0.0.1:{port}"
    with (
        _process([str(etcd), *_etcd_flags(folder, etcd_url)]) as etcd_process,
        _process([str(kube_apiserver), *_flags(folder, etcd_url, port)]) as api_process,
    ):
        while not _input_closed(tied):
            for program, process in ((etcd, etcd_process), (kube_apiserver, api_process)):
                if process.poll() is not None:
                    sys.exit(f"{program} ended by itself with code {process.returncode}")
            authority = folder / "certs" / "apiserver.crt"
            if not kubeconfig.exists() and _ready(server, token, authority):
                _write_kubeconfig(kubeconfig, server, token, authority)


def _etcd_flags(folder: Path, url: str) -> list[str]:
    peers = "http://127.0.0.1:0"
    return [
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--log-level=warn",
        "--unsafe-no-fsync",
        "--heartbeat-interval=10",
        "--election-timeout=100",
    ]


def _flags(folder: Path, etcd_url: str, port: int) -> list[str]:
    text = string.Template(FLAGS.read_text()).substitute(DIR=folder, ETCD=etcd_url)
    return [
        *(line for line in text.splitlines() if line.startswith("--")),
        f"--secure-port={port}",
        # Nothing here makes the service accounts that this plugin wants every pod to have.
        "--disable-admission-plugins=ServiceAccount",
    ]


def _admin_token(file: Path) -> str:
    if not file.exists():
        file.touch(mode=0o600)
        file.write_text(f"{secrets.token_hex(16)},admin,admin,system:masters\n")
    return file.read_text().split(",")[0]


def _ready(server: str, token: str, authority: Path) -> bool:
    try:
        tls = ssl.create_default_context(cafile=str(authority))
        with closing(HTTPSConnection(urlsplit(server).netloc, timeout=5, context=tls)) as client:
            client.request("GET", "/readyz", headers={"Authorization": f"Bearer {token}"})
            return client.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False


def _write_kubeconfig(file: Path, server: str, token: str, authority: Path) -> None:
    data = base64.b64encode(authority.read_bytes()).decode()
    name = "test"
    config = {
        "kind": "Config",
        "apiVersion": "v1",
        "clusters": [
            {"name": name, "cluster": {"server": server, "certificate-authority-data": data}}
        ],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    half_made = file.with_name("kubeconfig.new")
    half_made.touch(mode=0o600)
    half_made.write_text(json.dumps(config, indent=2))
    half_made.replace(file)


@contextmanager
def _process(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([*DYING_WITH_PARENT, *command], stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _input_closed(tied: bool) -> bool:
    """Wait a moment and say whether standard input has ended."""
    readable, _, _ = select.select([sys.stdin] if tied else [], [], [], POLL_S)
    return bool(readable) and not os.read(sys.stdin.fileno(), 1024)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _leave(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    main()
