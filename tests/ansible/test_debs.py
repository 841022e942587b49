"""A board gets the .deb files that it lacks and what they depend on, and no others."""

import io
import tarfile
from pathlib import Path

import pytest

from tests.ansible.plugins import load

debs = load("plugin_utils/debs")


def write(folder: Path, name: str, depends: str = "") -> Path:
    """A package with nothing in it; see deb(5)."""
    control = f"Package: {name}\nVersion: 1\nDepends: {depends}\nDescription: a\n b: c\n".encode()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        entry = tarfile.TarInfo("./control")
        entry.size = len(control)
        archive.addfile(entry, io.BytesIO(control))
    members = {"debian-binary": b"2.0\n", "control.tar.xz": packed.getvalue(), "data.tar.xz": b""}
    data = b"!<arch>\n"
    for member, content in members.items():
        header = f"{member:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n"
        data += header.encode() + content + b"\n" * (len(content) % 2)
    path = folder / f"{name}_1_arm64.deb"
    path.write_bytes(data)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "iperf3", "debconf (>= 0.5) | debconf-2.0, libc6 (>= 2.34), libiperf0 (= 1)")
    write(tmp_path, "libiperf0", "libsctp1:any (>= 1.0), libiperf0-plugin | libnone")
    write(tmp_path, "libsctp1", "libiperf0")  # a circle, as packages may be
    write(tmp_path, "mosquitto", "libcjson1")
    write(tmp_path, "libcjson1")
    return tmp_path


def test_what_is_asked_for_and_what_it_depends_on(folder: Path) -> None:
    names = [path.name for path in debs.needed(folder, ["iperf3"])]
    assert names == ["iperf3_1_arm64.deb", "libiperf0_1_arm64.deb", "libsctp1_1_arm64.deb"]


def test_a_package_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(debs.DebsError, match=r"expected a \.deb of tcpdump"):
        debs.needed(folder, ["iperf3", "tcpdump"])


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(debs.DebsError, match=r"bookworm-arm64: expected a \.deb of iperf3"):
        debs.needed(tmp_path / "bookworm-arm64", ["iperf3"])


@pytest.mark.parametrize("data", [b"", b"not a package", b"!<arch>\nx"])
def test_a_file_that_is_no_package_is_named(folder: Path, data: bytes) -> None:
    (folder / "zz.deb").write_bytes(data)
    with pytest.raises(debs.DebsError, match=r"zz\.deb: expected a Debian package"):
        debs.needed(folder, ["iperf3"])


def test_a_half_download_is_named(folder: Path) -> None:
    whole = write(folder, "half").read_bytes()
    (folder / "half_1_arm64.deb").write_bytes(whole[:200])
    with pytest.raises(debs.DebsError, match=r"half_1_arm64\.deb: expected a Debian package"):
        debs.needed(folder, ["iperf3"])
