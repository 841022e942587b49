"""Strategies from other packages, and the errors about those that are none."""

import logging
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from leadline_controller.parsing.entry_points import PluginError
from leadline_controller.settings import ConfigError, load
from leadline_controller.strategies.registry import StrategyRegistry

from tests.support.distributions import install

BUILT_IN = {"bef": "edge_first:BiggestEdgeFirst", "random": "chance:Chance"}
FIRST = """
from dataclasses import dataclass
from typing import ClassVar
from leadline_controller.plugin import Scores, best

@dataclass(frozen=True)
class First:
    name: ClassVar[str] = "first"
    better: ClassVar[str] = "lower"
    paper: ClassVar[str] = "none"
    needs: ClassVar[tuple[str, ...]] = ()

    def score(self, view, pod, candidates):
        total = candidates.astype(float)
        return Scores(candidates, total, best(total, self.better), lambda at: "the first")

    def charge(self, view, pod, node):
        return pod.requests
"""

Install = Callable[..., None]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a plug-in for this test: its strategies and, under the name of a module that no
    other test has, its source."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def plugin(strategies: Mapping[str, str], distribution: str = "first", **modules: str) -> None:
        for module in modules:
            monkeypatch.delitem(sys.modules, module, raising=False)
        install(tmp_path, distribution, {"leadline.strategies": strategies}, modules)

    return plugin


def registry() -> StrategyRegistry:
    return StrategyRegistry("leadline_controller.strategies", BUILT_IN)


def test_plugins_come_after_the_built_in_strategies(installed: Install) -> None:
    installed({"first": "plugin_first:First"}, plugin_first=FIRST)
    found = registry()
    assert list(found) == ["bef", "random", "first"]
    assert len(found) == 3
    assert "first" in found
    assert "second" not in found
    assert found["first"].paper == "none"
    assert found["bef"].__name__ == "BiggestEdgeFirst"
    assert list(found.items())[-1] == ("first", found["first"])
    assert list(found.values())[-1] is found["first"]
    with pytest.raises(KeyError):
        found["second"]


def test_a_class_is_imported_when_it_is_used(installed: Install) -> None:
    installed({"first": "plugin_lazy:First"}, plugin_lazy=FIRST)
    found = registry()
    assert "first" in list(found)
    assert "plugin_lazy" not in sys.modules
    assert found["first"]
    assert "plugin_lazy" in sys.modules


def test_names_need_no_numpy() -> None:
    program = (
        "import sys; from leadline_controller.strategies import STRATEGIES; "
        "assert 'dacs' in list(STRATEGIES); sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("entry_point", "source", "problem"),
    [
        ("broken_a:First", "import no_such_module", "cannot be imported: ModuleNotFoundError: No"),
        ("broken_a:First", "raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
        (
            "broken_a:First",
            "raise ImportError('first\\n\\nsecond')",
            "cannot be imported: ImportError: first second; install what it needs, or ",
        ),
        ("broken_a:First", "1 / 0", "cannot be imported: ZeroDivisionError: division by zero"),
        ("broken_a:Nothing", FIRST, "cannot be imported: AttributeError: "),
        ("no_such_module:First", FIRST, "cannot be imported: ModuleNotFoundError: "),
        ("broken_a", FIRST, "is not a strategy: expected a dataclass, got "),
        (
            "broken_a:First",
            FIRST.replace('"first"', '"last"'),
            "is not a strategy: name: expected the entry point's name, 'first', got 'last'",
        ),
        (
            "broken_a:First",
            FIRST.replace('"lower"', "[]"),
            "is not a strategy: better: expected lower or higher, got ",
        ),
        (
            "broken_a:First",
            FIRST.replace("needs: ", "wants: "),
            "is not a strategy: needs: expected a tuple of cpu_percent, ",
        ),
        (
            "broken_a:First",
            FIRST.replace("= ()", '= ("luck",)'),
            "is not a strategy: needs: expected a tuple of cpu_percent, ",
        ),
        (
            "broken_a:First",
            FIRST.replace("def charge", "def charged"),
            "is not a strategy: charge: expected a method, got nothing",
        ),
        (
            "broken_a:First",
            FIRST.replace("    def score", "    far: float\n    def score"),
            "is not a strategy: far: expected a default, got none",
        ),
    ],
)
def test_a_plugin_that_provides_no_strategy_is_named_with_its_package(
    entry_point: str,
    source: str,
    problem: str,
    installed: Install,
    caplog: pytest.LogCaptureFixture,
) -> None:
    installed({"first": entry_point}, distribution="leadline-first", broken_a=source)
    found = registry()
    with pytest.raises(PluginError) as raised:
        found["first"]
    message = str(raised.value)
    assert message.startswith(
        f"strategy plug-in leadline-first 1.2, entry point first = {entry_point}: {problem}"
    )
    assert message.endswith("uninstall the package")
    assert "\n" not in message
    assert list(dict(found.items())) == list(BUILT_IN), "the others can be used"
    assert [found[name] for name in BUILT_IN] == list(found.values())
    assert [record.getMessage() for record in caplog.records] == [message], "one line, once"


@pytest.mark.parametrize(
    ("plugins", "used", "ignored"),
    [
        (
            {"impostor": "bef"},
            "leadline_controller.strategies.edge_first",
            "strategy plug-in impostor 1.2, entry point bef = impostor:First: ignored, because "
            "Leadline has a strategy of this name; rename the entry point or uninstall the package",
        ),
        (
            {"plugin_b": "first", "plugin_a": "first"},
            "plugin_a",
            "strategy plug-in plugin_b 1.2, entry point first = plugin_b:First: ignored, because "
            "plugin_a 1.2 has a strategy of this name; rename the entry point or uninstall the "
            "package",
        ),
    ],
    ids=["a built-in strategy", "the plug-in whose distribution sorts first"],
)
def test_of_strategies_with_one_name_one_is_used(
    plugins: Mapping[str, str],
    used: str,
    ignored: str,
    installed: Install,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for module, name in plugins.items():
        installed({name: f"{module}:First"}, distribution=module, **{module: FIRST})
    found = registry()
    assert found[name].__module__ == used
    assert len(found) == len({*BUILT_IN, name})
    assert next(iter(plugins)) not in sys.modules
    assert [record.getMessage() for record in caplog.records] == [ignored]


def test_unreadable_metadata_on_the_machine_leaves_the_built_in_strategies(
    installed: Install, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    installed({"first": "unread:First"}, unread=FIRST)
    (tmp_path / "first-1.2.dist-info/entry_points.txt").write_text("[x]\nno equals sign\n")
    assert list(registry()) == list(BUILT_IN)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "pip check" in record.getMessage()


@pytest.fixture
def settings_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    monkeypatch.setattr("leadline_controller.settings.STRATEGIES", registry())

    def file(name: str) -> Path:
        path = tmp_path / "controller.toml"
        path.write_text(f'[strategy]\nname = "{name}"\n')
        return path

    return file


def test_the_settings_may_name_a_plugin(
    installed: Install, settings_of: Callable[[str], Path]
) -> None:
    installed({"first": "in_settings:First"}, in_settings=FIRST)
    assert load(settings_of("first"), {}).strategy == "first"


def test_the_controller_logs_that_a_plugin_with_the_configured_name_is_ignored(
    installed: Install, settings_of: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    installed({"bef": "no_such_module:First"})
    assert load(settings_of("bef"), {}).strategy == "bef"
    (line,) = (record.getMessage() for record in caplog.records)
    assert "entry point bef = no_such_module:First: ignored, because Leadline has a" in line


def test_only_the_configured_plugin_ends_the_controller(
    installed: Install, settings_of: Callable[[str], Path]
) -> None:
    installed({"first": "no_such_module:First"})
    assert load(settings_of("bef"), {}).strategy == "bef"
    with pytest.raises(ConfigError) as raised:
        load(settings_of("first"), {})
    assert "controller.toml: strategy.name: strategy plug-in first 1.2, " in str(raised.value)
    with pytest.raises(ConfigError, match="expected one of bef, random, first, got text 'last'"):
        load(settings_of("last"), {})
