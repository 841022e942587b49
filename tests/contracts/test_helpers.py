"""What several tests need is in a module of its own, so that no test module depends on another."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
# Also within the code of a process that a test starts.
FROM_A_TEST = re.compile(
    r"\b(from tests[.\w]*\.test_\w+ import|import tests[.\w]*\.test_\w+"
    r"|from tests[.\w]* import [^(\n]*\btest_\w+)"
)


def test_no_module_imports_from_a_test_module() -> None:
    found = [
        f"{path.relative_to(TESTS)}: {match[0]}"
        for path in sorted(TESTS.rglob("*.py"))
        for match in FROM_A_TEST.finditer(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    ["from {}.test_keda import PODS", "import {}.test_keda", "from {} import objects, test_keda"],
)
def test_each_way_to_import_one_is_found(line: str) -> None:
    assert FROM_A_TEST.search(line.format("tests.kube"))
