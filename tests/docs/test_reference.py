"""The pages of all commands and of the API, and those of the manual, are as `make reference` writes
them."""

from pathlib import Path

import pytest

from tests.docs.reference import generated

FILES = generated()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_repeats_the_code_is_up_to_date(file: Path) -> None:
    assert file.read_text(encoding="utf-8") == FILES[file], "run make reference"


def test_every_command_field_and_call_has_its_line() -> None:
    text = "".join(FILES.values())
    for line in ("### leadline kube manifests", ".SS leadline lab up ", "| `ExplainPod` |"):
        assert line in text
    assert "| `bandwidth_age_s` | 6 | double, optional | Seconds since the bandwidth was" in text
