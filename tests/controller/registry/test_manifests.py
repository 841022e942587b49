"""Answers of registries are read strictly."""

from __future__ import annotations

import json
from typing import Any

import pytest
from leadline_controller.registry.manifests import BrokenError, Index, Manifest, read_answer

from tests.support.registries import digest, index, manifest


def test_a_manifest_has_its_layers_in_mb() -> None:
    body = manifest(b"x" * 1_500_000, b"y")
    answer = read_answer(body, digest(body))
    assert isinstance(answer, Manifest)
    assert [layer.size_mb for layer in answer.layers] == [1.5, 1e-6]


def test_of_the_variants_of_an_architecture_the_newest_counts() -> None:
    v6, v7, plain = manifest(b"6"), manifest(b"7"), manifest(b"8")
    answer = read_answer(index({"arm/v6": v6, "arm/v7": v7, "amd64": plain, "s390x/odd": plain}))
    assert isinstance(answer, Index)
    assert answer.manifests == {"arm": digest(v7), "amd64": digest(plain)}


def test_an_answer_with_another_digest_is_refused() -> None:
    with pytest.raises(BrokenError, match="not sha256"):
        read_answer(manifest(b"x"), digest(b"else"))


def changed(**fields: Any) -> bytes:
    return json.dumps({**json.loads(manifest(b"x")), **fields}).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"[" * 100_000,
        b"\xff",
        changed(schemaVersion=1),
        changed(layers=None),
        changed(layers=["x"]),
        changed(layers=[{"digest": "sha256:" + "0" * 64, "size": -1}]),
        changed(layers=[{"digest": "sha256:" + "0" * 64, "size": True}]),
        changed(layers=[{"digest": "sha256:" + "0" * 64, "size": 10**30}]),
        changed(layers=[{"digest": "sha512:" + "0" * 128, "size": 1}]),
        changed(layers=[{"digest": "../../etc", "size": 1}]),
        changed(layers=[{"digest": "sha256:" + "0" * 64, "size": 1}] * 513),
        changed(manifests=[{}] * 1025),
    ],
)
def test_whatever_is_not_a_manifest_is_broken(body: bytes) -> None:
    with pytest.raises(BrokenError):
        read_answer(body)


@pytest.mark.parametrize(
    "entry",
    [
        None,
        {},
        {"platform": {"os": "linux"}},
        {"platform": {"os": "linux", "architecture": 5}},
        {"platform": {"os": "linux", "architecture": "arm64"}, "digest": "x"},
        {"platform": {"os": "windows", "architecture": "amd64"}, "digest": digest(b"")},
        {"platform": {"os": "unknown", "architecture": "unknown"}, "digest": digest(b"")},
        {"platform": {"os": "linux", "architecture": "arm", "variant": []}, "digest": digest(b"")},
    ],
)
def test_entries_of_an_index_that_no_board_can_use_are_skipped(entry: object) -> None:
    answer = read_answer(json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode())
    assert isinstance(answer, Index)
    assert answer.manifests == {}
