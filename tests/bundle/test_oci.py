"""An archive has what the image layout asks for, and the same files give the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from typing import Any

from leadline_bundle import oci
from leadline_bundle.oci import File, Layer, Platform

TIME_S = 1_700_000_000
FILES = {
    "usr/bin/tool": File(b"#!tool", executable=True),
    "etc/tool.conf": File(b"a = 1\n"),
    "bin": File(link="usr/bin"),
}


def entries(layer: Layer) -> list[tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(layer.blob))) as tar:
        return tar.getmembers()


def test_a_layer_has_folders_modes_and_one_time_and_owner() -> None:
    found = {each.name: each for each in entries(oci.layer(FILES, TIME_S))}
    assert list(found) == ["bin", "etc", "etc/tool.conf", "usr", "usr/bin", "usr/bin/tool"]
    assert {each.mtime for each in found.values()} == {TIME_S}
    assert {(each.uid, each.gid, each.uname) for each in found.values()} == {(0, 0, "")}
    assert (found["bin"].issym(), found["bin"].linkname) == (True, "usr/bin")
    assert (found["usr/bin"].isdir(), found["usr/bin"].mode) == (True, 0o755)
    assert [found[name].mode for name in ("usr/bin/tool", "etc/tool.conf")] == [0o755, 0o644]


def test_the_order_of_files_does_not_matter() -> None:
    backwards = dict(reversed(FILES.items()))
    assert oci.layer(FILES, TIME_S) == oci.layer(backwards, TIME_S)


def test_a_layer_tells_the_digest_of_its_tar() -> None:
    made = oci.layer(FILES, TIME_S)
    assert made.diff_id == "sha256:" + hashlib.sha256(gzip.decompress(made.blob)).hexdigest()


def archived(*architectures: str) -> tuple[bytes, str]:
    layer = oci.layer(FILES, TIME_S)
    platforms = [Platform(each, [layer], {"User": "1:1"}) for each in architectures]
    return oci.archive(platforms, "localhost/tool:1.0", {"a": "b"}, "2023-11-14T22:13:20Z")


def test_every_blob_of_an_archive_is_there_under_its_digest() -> None:
    whole_tar, digest = archived("amd64", "arm64")
    with tarfile.open(fileobj=io.BytesIO(whole_tar)) as tar:

        def read(path: str) -> bytes:
            file = tar.extractfile(path)
            assert file
            return file.read()

        def blob(descriptor: dict[str, Any]) -> bytes:
            content = read(f"blobs/{descriptor['digest'].replace(':', '/')}")
            assert len(content) == descriptor["size"]
            assert f"sha256:{hashlib.sha256(content).hexdigest()}" == descriptor["digest"]
            return content

        assert json.loads(read("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
        (top,) = json.loads(read("index.json"))["manifests"]
        assert top["digest"] == digest
        assert top["annotations"]["io.containerd.image.name"] == "localhost/tool:1.0"
        assert top["annotations"]["org.opencontainers.image.ref.name"] == "1.0"
        whole = json.loads(blob(top))
        assert whole["mediaType"] == top["mediaType"] == oci.INDEX
        assert [each["platform"]["architecture"] for each in whole["manifests"]] == [
            *("amd64", "arm64")
        ]
        for each in whole["manifests"]:
            manifest = json.loads(blob(each))
            config = json.loads(blob(manifest["config"]))
            assert config["architecture"] == each["platform"]["architecture"]
            assert config["config"] == {"User": "1:1", "Labels": {"a": "b"}}
            assert config["created"] == "2023-11-14T22:13:20Z"
            for layer, diff_id in zip(
                manifest["layers"], config["rootfs"]["diff_ids"], strict=True
            ):
                unzipped = gzip.decompress(blob(layer))
                assert f"sha256:{hashlib.sha256(unzipped).hexdigest()}" == diff_id


def test_the_same_platforms_give_the_same_archive() -> None:
    assert archived("amd64", "arm64") == archived("amd64", "arm64")
    assert archived("amd64") != archived("arm64")
