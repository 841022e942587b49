"""Lock files are read exactly, and unknown lines are errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from leadline_bundle.lock import LockedDistribution, for_target, name_and_version, read_lock
from leadline_bundle.targets import TARGETS, Target
from leadline_bundle.tools import BundleError, sha256

REPOSITORY = Path(__file__).parents[2]
A, B = "a" * 64, "b" * 64
OLD, NEW = Target("3.11", "aarch64"), Target("3.13", "x86_64")


def lock(folder: Path, text: str) -> Path:
    file = folder / "requirements.lock"
    file.write_text(text)
    return file


def test_names_versions_markers_and_hashes_are_read(tmp_path: Path) -> None:
    text = f"""\
# a comment
Paho_MQTT==2.2.0 \\
    --hash=sha256:{A} \\
    --hash=sha256:{B}
    # via leadline-agent
numpy==2.4.6 ; python_full_version < '3.12' \\
    --hash=sha256:{A}
"""
    first, second = read_lock(lock(tmp_path, text))
    assert first == LockedDistribution("paho-mqtt", "2.2.0", frozenset({A, B}))
    assert (second.name, second.hashes) == ("numpy", frozenset({A}))
    assert for_target([second], OLD) == (second,)
    assert for_target([second], NEW) == ()


def test_what_is_written_reads_the_same(tmp_path: Path) -> None:
    marker = 'python_full_version < "3.12"'
    written = (
        LockedDistribution("numpy", "2.4.6", frozenset({A, B}), marker),
        LockedDistribution("six", "1", frozenset({A})),
    )
    assert read_lock(lock(tmp_path, "".join(each.line() for each in written))) == written


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("six==1.17.0\n", "six: expected hashes"),
        (f"six>=1.17.0 --hash=sha256:{A}\n", "expected NAME==VERSION, found 'six>=1.17.0'"),
        (f"-e ./agent --hash=sha256:{A}\n", "expected NAME==VERSION"),
    ],
)
def test_a_line_that_locks_nothing_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    file = lock(tmp_path, text)
    with pytest.raises(BundleError) as refused:
        read_lock(file)
    assert str(refused.value).startswith(f"{file}: ")
    assert complaint in str(refused.value)


def test_a_lock_that_is_not_there_says_what_makes_it(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="make lock"):
        read_lock(tmp_path / "requirements.lock")


def test_each_target_gets_its_own_numpy() -> None:
    both = (
        LockedDistribution("numpy", "2.4.6", frozenset({A}), "python_full_version < '3.12'"),
        LockedDistribution("numpy", "2.5.5", frozenset({B}), "python_full_version >= '3.12'"),
        LockedDistribution("colorama", "0.4.6", frozenset({B}), "sys_platform == 'win32'"),
    )
    assert [each.version for each in for_target(both, OLD)] == ["2.4.6"]
    assert [each.version for each in for_target(both, NEW)] == ["2.5.5"]


@pytest.mark.parametrize(
    ("wheel", "takers"),
    [
        ("six-1.17.0-py2.py3-none-any.whl", {"cp311-aarch64", "cp313-x86_64"}),
        (
            "psutil-7.2.2-cp36-abi3-manylinux2014_aarch64.manylinux_2_28_aarch64.whl",
            {"cp311-aarch64"},
        ),
        (
            "numpy-2.5.5-cp313-cp313-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
            {"cp313-x86_64"},
        ),
        ("numpy-2.5.5-cp313-cp313t-manylinux_2_28_x86_64.whl", set()),
        ("new-1-cp313-cp313-manylinux_2_39_x86_64.whl", set()),
        ("alpine-1-cp313-cp313-musllinux_1_2_x86_64.whl", set()),
        ("old-1-cp311-cp311-manylinux1_x86_64.whl", set()),
    ],
)
def test_a_wheel_goes_to_whom_it_runs_on(wheel: str, takers: set[str]) -> None:
    assert {target.name for target in (OLD, NEW) if target.takes(Path(wheel))} == takers


def test_a_wheels_name_tells_whose_it_is() -> None:
    assert name_and_version(Path("wheels/paho_mqtt-2.2.0-py3-none-any.whl")) == (
        "paho-mqtt",
        "2.2.0",
    )
    with pytest.raises(BundleError, match=r"notes\.txt"):
        name_and_version(Path("wheels/notes.txt"))


def test_a_files_hash_is_its_contents(tmp_path: Path) -> None:
    file = tmp_path / "empty"
    file.touch()
    assert sha256(file) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize("part", ["agent", "controller"])
def test_a_board_gets_the_versions_that_are_tested(part: str) -> None:
    tested = {(each.name, each.version) for each in read_lock(REPOSITORY / "requirements.lock")}
    locked = {
        (each.name, each.version) for each in read_lock(REPOSITORY / part / "requirements.lock")
    }
    assert locked
    assert locked <= tested


def test_the_agents_lock_holds_what_a_board_has_room_for() -> None:
    locked = read_lock(REPOSITORY / "agent" / "requirements.lock")
    names = ["iperf3", "paho-mqtt", "ping3", "protobuf", "psutil"]
    assert all([each.name for each in for_target(locked, target)] == names for target in TARGETS)
