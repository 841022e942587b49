"""Answers of registries are read strictly."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from leadline_controller.registry.manifests import (
    MAX_BYTES,
    BrokenError,
    Index,
    Manifest,
    read_answer,
)

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


def platforms(*entries: dict[str, Any] | None) -> bytes:
    """An index of these platforms, whose digests count from 0; None names none."""
    manifests = [
        {"digest": f"sha256:{number:064x}", "size": 1, "platform": entry}
        for number, entry in enumerate(entries)
    ]
    return json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()


def on(architecture: str, variant: str | None = None, os: str | None = "linux") -> dict[str, Any]:
    return {"architecture": architecture, "os": os, "variant": variant}


@pytest.mark.parametrize(
    ("entries", "architecture", "expected"),
    [
        ([on("amd64"), on("arm64")], "arm64", 1),
        # As containerd normalises them.
        ([on("aarch64")], "arm64", 0),
        ([on("ARM64", "V8", "Linux")], "arm64", 0),
        ([on("arm64", "8"), on("arm64")], "arm64", 0),
        ([on("arm64", "v8.0")], "arm64", 0),
        ([on("arm64", "v9")], "arm64", None),
        ([on("x86_64")], "amd64", 0),
        ([on("amd64", "v3"), on("amd64", "v1")], "amd64", 1),
        ([on("arm64", os=None)], "arm64", 0),
        ([on("arm64", os="windows")], "arm64", None),
        # The newest variant that boards have; none means v7.
        ([on("arm", "v5"), on("arm", "v6"), on("arm", "v7")], "arm", 2),
        ([on("arm", "6"), on("arm")], "arm", 1),
        ([on("armel"), on("armhf")], "arm", 1),
        ([on("arm", "v5")], "arm", 0),
        # What a board runs as well.
        ([on("arm", "v7")], "arm64", 0),
        ([on("arm", "v7"), on("arm64")], "arm64", 1),
        ([on("i386")], "amd64", 0),
        ([on("arm64")], "arm", None),
        # Entries without a platform come last, the first of them; attestations never.
        ([None], "arm64", 0),
        ([None, on("arm64")], "arm64", 1),
        ([None, None], "arm64", 0),
        ([on("unknown", os="unknown")], "arm64", None),
        ([on("unknown", os="unknown"), None], "arm64", 1),
    ],
)
def test_an_index_has_one_manifest_for_an_architecture(
    entries: list[dict[str, Any] | None], architecture: str, expected: int | None
) -> None:
    answer = read_answer(platforms(*entries))
    assert isinstance(answer, Index)
    assert answer.of(architecture) == (None if expected is None else f"sha256:{expected:064x}")


def test_an_index_may_have_other_indexes_and_things_that_are_no_images() -> None:
    kinds = ["application/vnd.oci.image.index.v1+json", "application/vnd.example+json"]
    arm, other = ({"mediaType": kind, "digest": digest(kind.encode()), "size": 1} for kind in kinds)
    signature = {"artifactType": "application/spdx+json", "digest": digest(b"s"), "size": 1}
    entries = [other, signature, {**arm, "platform": on("arm64")}]
    answer = read_answer(json.dumps({"schemaVersion": 2, "manifests": entries}).encode())
    assert isinstance(answer, Index)
    assert answer.manifests == {"arm64": digest(kinds[0].encode())}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"schemaVersion": 1, "fsLayers": [], "layers": None}, "schema 1"),
        ({"schemaVersion": 3, "layers": []}, "schema version 2"),
        ({"schemaVersion": 2}, "neither layers nor manifests"),
        ({"layers": [], "manifests": []}, "both layers and manifests"),
        ({"layers": [None]}, r"no list of layers: Expected `object`, got `null` - at `\$\[0\]`"),
        ({"layers": [{"digest": "sha512:0", "size": 1}]}, r"matching regex .* at `\$\[0\].digest`"),
        ({"layers": [{"digest": digest(b"")}]}, "missing required field `size`"),
        ({"layers": {}}, "Expected `array`"),
        ({"manifests": [5]}, r"Expected `object \| null`"),
    ],
)
def test_what_is_wrong_is_told(body: dict[str, Any], why: str) -> None:
    with pytest.raises(BrokenError, match=why):
        read_answer(json.dumps({"schemaVersion": 2, **body}).encode(), "")


def test_an_image_of_schema_1_is_told_whatever_its_digest() -> None:
    """It is signed, and its digest is that of a part."""
    with pytest.raises(BrokenError, match="schema 1"):
        read_answer(b'{"schemaVersion": 1}', digest(b"else"))


@pytest.mark.parametrize("item", ['{"":{}}', "[]", '""', "1", "[[[[]]]]", "null", "{}"])
@pytest.mark.parametrize("field", ["x", "layers", "manifests"])
def test_junk_makes_no_objects(item: str, field: str) -> None:
    """However it is arranged in 4 MiB; each of a million objects takes 50 bytes or more."""
    items = ",".join([item] * (MAX_BYTES // (len(item) + 1)))
    body = f'{{"schemaVersion":2,"{field}":[{items}]}}'.encode()
    tracemalloc.start()
    try:
        with pytest.raises(BrokenError):
            read_answer(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * MAX_BYTES


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
