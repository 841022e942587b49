"""A bundle is complete or absent, and its id is a hash of its bytes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from leadline_bundle import __main__ as command
from leadline_bundle import build as build_module
from leadline_bundle.build import build, fingerprint, is_bundle
from leadline_bundle.tools import BundleError, Cache, run


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A checkout that has no more than its version."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    return folder


def fill_with(
    monkeypatch: pytest.MonkeyPatch, *texts: str, then: BaseException | None = None
) -> None:
    """Let a bundle hold these texts instead of wheels, and then fail where `then` is given."""

    def fill(new: Path, *_: object) -> None:
        new.mkdir()
        for number, text in enumerate(texts):
            (new / f"{number}.txt").write_text(text)
        if then:
            raise then

    monkeypatch.setattr(build_module, "_fill", fill)


def made(source: Path) -> tuple[Path, str]:
    out = source / "dist" / "bundle"
    return out, build(source, out, Cache(source / "cache"), {}, lambda step: None)


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_the_release_is_the_version_and_the_bytes(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_with(monkeypatch, "wheel")
    out, release = made(source)
    assert (out / "VERSION").read_text() == f"{release}\n"
    assert release == f"1.2.3-{fingerprint(out)}"
    assert len(release) == len("1.2.3-") + 12
    fill_with(monkeypatch, "another")
    assert made(source)[1] != release
    assert (out / "0.txt").read_text() == "another"


def test_a_name_counts_as_the_bytes_do(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("same")
    before = fingerprint(tmp_path)
    file.rename(tmp_path / "b")
    assert fingerprint(tmp_path) != before


def test_the_same_again_touches_nothing(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_with(monkeypatch, "wheel")
    out, release = made(source)
    before = out.stat(), (out / "VERSION").stat()
    assert made(source) == (out, release)
    assert (out.stat(), (out / "VERSION").stat()) == before


@pytest.mark.parametrize("fault", [BundleError("no network"), KeyboardInterrupt()])
def test_who_fails_half_way_leaves_the_old_bundle(
    source: Path, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    fill_with(monkeypatch, "wheel")
    out, release = made(source)
    fill_with(monkeypatch, "half", then=fault)
    with pytest.raises(type(fault)):
        made(source)
    assert is_bundle(out, release)
    assert names(out.parent) == {"bundle"}


def test_what_a_killed_run_left_is_swept_up(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_with(monkeypatch, "wheel")
    left = source / "dist" / ".bundle-killed" / "new"
    left.mkdir(parents=True)
    out, _ = made(source)
    assert names(out.parent) == {"bundle"}


def test_a_damaged_bundle_is_made_again(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_with(monkeypatch, "one", "two")
    out, release = made(source)
    (out / "1.txt").unlink()
    assert not is_bundle(out, release)
    assert made(source) == (out, release)
    assert is_bundle(out, release)


def test_a_folder_in_the_cache_is_made_once_and_again_when_damaged(tmp_path: Path) -> None:
    cache, runs = Cache(tmp_path), []

    def make(folder: Path) -> None:
        runs.append(folder)
        folder.mkdir()
        (folder / "file").touch()

    def is_whole(folder: Path) -> bool:
        return (folder / "file").exists()

    with cache.locked():
        kept = cache.folder("a", make, is_whole)
        assert cache.folder("a", make, is_whole) == kept == tmp_path / "a"
        assert len(runs) == 1
        (kept / "file").unlink()
        cache.folder("a", make, is_whole)
    assert len(runs) == 2
    assert is_whole(kept)


def test_what_could_not_be_made_is_not_in_the_cache(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    def fail(folder: Path) -> None:
        folder.mkdir()
        raise BundleError("no network")

    with cache.locked(), pytest.raises(BundleError):
        cache.folder("a", fail, lambda folder: True)
    assert names(tmp_path) == {"lock"}


def test_only_what_nobody_used_for_a_month_leaves_the_cache(tmp_path: Path) -> None:
    for name in ("old", "young", "used", "new-killed"):
        (tmp_path / name).mkdir()
    long_ago_s = time.time() - 31 * 24 * 3600
    for name in ("old", "used"):
        os.utime(tmp_path / name, (long_ago_s, long_ago_s))
    cache = Cache(tmp_path)
    with cache.locked():
        cache.folder("used", Path.mkdir, lambda folder: True)
        cache.prune()
    assert names(tmp_path) == {"lock", "young", "used"}


def test_a_failure_is_one_line(
    source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill_with(monkeypatch, then=BundleError("the wheels for cp311-aarch64: no network"))
    code = command.main(["--source", str(source), "--cache", str(source / "cache")])
    printed = capsys.readouterr()
    assert (code, printed.out) == (1, "")
    assert printed.err == "bundle: the wheels for cp311-aarch64: no network\n"


def test_a_checkout_that_is_none_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = command.main(["--source", str(tmp_path / "nowhere"), "--cache", str(tmp_path / "cache")])
    printed = capsys.readouterr()
    assert (code, printed.out) == (1, "")
    assert printed.err.startswith(f"bundle: {tmp_path / 'nowhere' / 'pyproject.toml'}: ")
    assert printed.err.count("\n") == 1
    assert not names(tmp_path)


def test_a_programs_own_complaint_is_passed_on() -> None:
    with pytest.raises(BundleError) as refused:
        run(["sh", "-c", "echo fetching; echo ERROR: no such wheel >&2; exit 1"], {}, "wheels")
    assert str(refused.value) == "wheels: ERROR: no such wheel"
