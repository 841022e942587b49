"""The file of what registries told."""

from __future__ import annotations

from pathlib import Path

import pytest
from leadline_controller.framework.model import Layer
from leadline_controller.registry.cache import ImageCache, KnownImage, read_line

DIGEST = "sha256:" + "0" * 64


def known(name: str, layers: int = 2) -> KnownImage:
    made = tuple(Layer(f"sha256:{i:064x}", i + 0.5) for i in range(layers))
    return KnownImage(f"reg/{name}:1", f"reg/{name}@{DIGEST}", {"arm64": made, "amd64": ()})


def test_images_come_back_after_a_restart(tmp_path: Path) -> None:
    cache = ImageCache(tmp_path / "images.jsonl", 2**20)
    assert not list(cache.load())
    cache.append([known("a"), known("b")])
    cache.append([known("a", layers=3)])
    assert list(ImageCache(tmp_path / "images.jsonl", 2**20).load()) == [
        known("a", layers=3),
        known("b"),
    ]
    assert (tmp_path / "images.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "damage", [b"\xff\xfe", b"{}\n", b"[" * 100_000 + b"\n", b'{"image": 5}\n', b"half a li"]
)
def test_damage_costs_only_what_it_hit(tmp_path: Path, damage: bytes) -> None:
    file = tmp_path / "images.jsonl"
    file.write_bytes(known("a").line() + damage)
    found = list(ImageCache(file, 2**20).load())
    assert found in ([known("a")], [])
    assert ImageCache(file, 2**20).append([known("b")]) is False


def test_what_an_earlier_release_took_for_no_image_is_asked_for_again() -> None:
    """It wrote [] for an architecture, and did not read indexes that do not say the platform."""
    line = known("a").line().replace(b'"amd64":null', b'"amd64":[]')
    read = read_line(line)
    assert read is not None
    assert read.layers == {"arm64": known("a").layers["arm64"]}
    empty = known("a", layers=0)._replace(layers={"": ()})
    assert read_line(empty.line()) == empty, "an image of no layers at all"


@pytest.mark.parametrize(
    ("layers", "complete", "of_use"),
    [
        ({}, False, False),
        ({"": 0}, True, True),
        ({"arm64": 2}, False, True),
        ({"arm64": 0}, False, False),
        ({"arm64": 2, "amd64": 0}, True, True),
        ({"arm64": 0, "amd64": 0}, True, False),
        ({"riscv64": 2, "arm64": 0}, False, False),
    ],
)
def test_what_is_known_for_the_nodes(layers: dict[str, int], complete: bool, of_use: bool) -> None:
    made = {name: (Layer("sha256:0", 1.0),) * count for name, count in layers.items()}
    image = known("a")._replace(layers=made)
    assert image.is_complete({"arm64", "amd64"}) is complete
    assert image.is_of_use({"arm64", "amd64"}) is of_use


def test_a_file_over_its_limit_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "images.jsonl"
    cache = ImageCache(file, 4096)
    while not cache.append([known("a")]):
        assert file.stat().st_size <= 4096
    cache.replace([known("b"), known("c")])
    assert [each.image for each in cache.load()] == ["reg/b:1", "reg/c:1"]
    assert [each.name for each in tmp_path.iterdir()] == ["images.jsonl"]
    cache.replace(known(f"n{i}") for i in range(1000))
    assert file.stat().st_size <= 2048


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    for path in (tmp_path / "none" / "images.jsonl", None):
        cache = ImageCache(path, 2**20)
        assert cache.append([known("a")]) is False
        cache.replace([known("a")])
        assert list(cache.load()) == []
    assert ImageCache(tmp_path / "x", 0).append([known("a")]) is False
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "5",
        '{"image": "a", "digest": "a@sha256:1", "layers": {}}',
        f'{{"image": "a", "digest": "a@{DIGEST}", "layers": []}}',
        f'{{"image": "a", "digest": "a@{DIGEST}", "layers": {{"": [["{DIGEST}", -1]]}}}}',
        f'{{"image": "a", "digest": "a@{DIGEST}", "layers": {{"": [["{DIGEST}"]]}}}}',
    ],
)
def test_lines_are_read_strictly(line: str) -> None:
    assert read_line(line.encode()) is None
