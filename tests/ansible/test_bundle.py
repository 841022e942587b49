"""The part of a bundle that is copied to a board, and the errors about an incomplete one."""

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.ansible.plugins import load

bundle = load("plugin_utils/bundle")
WHEELS = {"a-1-py3-none-any.whl": b"a", "c-1-cp311-cp311-linux_aarch64.whl": b"c"}


@pytest.fixture
def whole(tmp_path: Path) -> Any:
    folder = tmp_path / "bundle"
    for name in ("agent", "wheels", "pip", "units"):
        (folder / name).mkdir(parents=True)
    (folder / "VERSION").write_text("0.1.0-0123456789ab\n")
    (folder / "pip/pip-26-py3-none-any.whl").write_bytes(b"pip")
    (folder / "units/leadline-agent.service").write_text("[Unit]\n")
    for name, data in WHEELS.items():
        (folder / "wheels" / name).write_bytes(data)
    (folder / "wheels/c-1-cp313-cp313-linux_x86_64.whl").write_bytes(b"another board's")
    hashes = [hashlib.sha256(data).hexdigest() for data in WHEELS.values()]
    lines = [f"x==1 --hash=sha256:{digest}\n" for digest in hashes]
    (folder / "agent/requirements.txt").write_text("".join(lines))
    (folder / "agent/wheels-cp311-aarch64.txt").write_text("\n".join(WHEELS))
    return bundle.Bundle(folder, "agent", "3.11.2", "aarch64")


def test_only_this_boards_wheels_travel(whole: Any, tmp_path: Path) -> None:
    whole.pack(tmp_path / "archive.zip")
    with zipfile.ZipFile(tmp_path / "archive.zip") as packed:
        names = set(packed.namelist())
    assert names == {
        "requirements.txt",
        "units/leadline-agent.service",
        "pip/pip-26-py3-none-any.whl",
        *(f"wheels/{name}" for name in WHEELS),
    }


def test_its_release(whole: Any) -> None:
    assert whole.release == "0.1.0-0123456789ab"


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ("VERSION", "there is no bundle here: run `make bundle`"),
        ("wheels/a-1-py3-none-any.whl", "the bundle is not whole"),
        ("units/leadline-agent.service", "the bundle is not whole"),
        ("agent/requirements.txt", "the bundle is not whole"),
        ("pip/pip-26-py3-none-any.whl", "expected one wheel of pip"),
        ("agent/wheels-cp311-aarch64.txt", "no wheels for Python 3.11.2 on aarch64"),
    ],
)
def test_what_is_missing_is_said(whole: Any, gone: str, said: str) -> None:
    (whole.folder / gone).unlink()
    with pytest.raises(bundle.BundleError, match=said):
        (whole.release, whole.files())


def test_a_wheel_that_the_lock_does_not_name_is_refused(whole: Any) -> None:
    (whole.folder / "wheels/a-1-py3-none-any.whl").write_bytes(b"another")
    with pytest.raises(bundle.BundleError, match="not the file that the bundle's lock names"):
        whole.files()


def test_a_version_that_is_none_is_refused(whole: Any) -> None:
    (whole.folder / "VERSION").write_text("../../etc\n")
    with pytest.raises(bundle.BundleError, match="expected VERSION-HASH"):
        assert whole.release
