"""Behind a proxy that signs for every site with an authority of its own, which this machine trusts:
pip and uv, as the Makefile runs them, install from a package index over TLS."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.file_server import served
from tests.support.release import REPOSITORY

pytestmark = pytest.mark.package

UV = Path(sys.executable).parent / "uv"
# In a mount namespace of its own, so this machine's list stays as it is.
TRUSTING = 'mount --bind "$1" /etc/ssl/certs/ca-certificates.crt && shift && exec "$@"'
OTHERS = ("PIP_", "UV_", "SSL_CERT_", "REQUESTS_CA_", "CURL_CA_", "MAKE", "MFLAGS")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def index(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an index with a distribution that is named uv, and is one module."""
    folder = tmp_path_factory.mktemp("index")
    wheel = folder / "simple/uv/uv-1-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("uv.py", "def main(): print('this one')\n")
        archive.writestr("uv-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: uv\nVersion: 1\n")
        archive.writestr("uv-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("uv-1.dist-info/entry_points.txt", "[console_scripts]\nuv = uv:main\n")
        archive.writestr("uv-1.dist-info/RECORD", "")
    own = authority.server("127.0.0.1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(own.cert_file, own.key_file)
    with served(folder, tls) as url:
        yield f"{url}/simple"


@pytest.mark.parametrize("program", ["pip", "uv"])
def test_it_installs_from_an_index_that_only_this_machine_trusts(
    program: str, index: str, authority: Authority, tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    environ = {k: v for k, v in os.environ.items() if not k.upper().startswith(OTHERS)}
    environ |= {
        **{"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "HOME": str(tmp_path)},
        **{"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": index, "PIP_RETRIES": "0"},
        **{"UV_DEFAULT_INDEX": index, "UV_HTTP_RETRIES": "0"},
    }
    words: list[str | Path] = ["make", f"VENV={venv}", venv / "bin/uv"]
    if program == "uv":
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        words = [UV, "pip", "install", "--python", venv / "bin/python", "uv"]

    def run(*prefix: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*prefix, *words], env=environ, cwd=REPOSITORY, capture_output=True, text=True
        )

    assert run().returncode != 0, "this index is trusted anyway"
    done = run("unshare", "--mount", "sh", "-c", TRUSTING, "sh", authority.ca_file)
    assert done.returncode == 0, done.stderr
    assert subprocess.check_output([venv / "bin/uv"], text=True) == "this one\n"
