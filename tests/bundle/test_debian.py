"""Debian's packages: the lock, and what of a package is in an image."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from leadline_bundle import debian, image
from leadline_bundle.debian import Package
from leadline_bundle.oci import File
from leadline_bundle.tools import BundleError


def package(folder: Path, name: str, files: dict[str, str], links: dict[str, str]) -> Path:
    """A package that dpkg-deb builds."""
    root = folder / name
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: 1:2-3\nArchitecture: all\nMaintainer: nobody <n@example>\n"
        "Description: for a test\n"
    )
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
        (root / path).chmod(0o755 if "bin/" in path else 0o644)
    for path, target in links.items():
        (root / path).symlink_to(target)
    built = folder / f"{name}.deb"
    command = ["dpkg-deb", "--root-owner-group", "--build", str(root), str(built)]
    subprocess.run(command, check=True, capture_output=True)
    return built


def test_folders_are_merged_and_licences_stay(tmp_path: Path) -> None:
    files = {
        "lib/x/libtool.so.1": "library",
        "usr/bin/tool": "program",
        "usr/share/doc/tool/copyright": "MIT",
        "usr/share/doc/tool/changelog": "long",
        "usr/share/man/man1/tool.1": "long, too",
    }
    deb = package(tmp_path, "tool", files, {"lib/x/libtool.so": "libtool.so.1"})
    found = debian.unpacked([deb])
    status = found.pop("var/lib/dpkg/status.d/tool")
    assert status.content.decode().startswith("Package: tool\nVersion: 1:2-3\n")
    assert found == {
        **{name: File(link=f"usr/{name}") for name in ("bin", "lib", "lib64", "sbin")},
        "usr/lib/x/libtool.so.1": File(b"library"),
        "usr/lib/x/libtool.so": File(link="libtool.so.1"),
        "usr/bin/tool": File(b"program", executable=True),
        "usr/share/doc/tool/copyright": File(b"MIT"),
    }


def test_what_is_no_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.deb").write_text("this is no archive at all\n")
    with pytest.raises(BundleError, match=r"broken\.deb: .*archive"):
        debian.unpacked([tmp_path / "broken.deb"])


def test_the_lock_has_every_package_for_every_architecture() -> None:
    names = [(each.architecture, each.name) for each in debian.read_lock()]
    assert sorted(names) == names
    assert set(names) == {
        (architecture, name)
        for architecture in image.ARCHITECTURES
        for packages in image.PACKAGES.values()
        for name in packages
    }


def test_a_lock_reads_as_it_is_written(tmp_path: Path) -> None:
    lock = tmp_path / "debian.lock"
    wanted = Package("arm64", "libc6", "2.36-9+deb12u14", "ab" * 32)
    lock.write_text(f"# comment\n{wanted.line()}")
    assert debian.read_lock(lock) == (wanted,)


@pytest.mark.parametrize(
    ("text", "message"),
    [("amd64 libc6 2.36\n", "expected ARCHITECTURE PACKAGE VERSION SHA256"), (None, "image-lock")],
)
def test_a_wrong_lock_is_named(text: str | None, message: str, tmp_path: Path) -> None:
    lock = tmp_path / "debian.lock"
    if text is not None:
        lock.write_text(text)
    with pytest.raises(BundleError, match=f"{lock}: .*{message}"):
        debian.read_lock(lock)
