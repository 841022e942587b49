import pytest
from leadline_controller.cluster import known_layers
from leadline_controller.cluster.known_layers import KnownLayers
from leadline_controller.framework.model import Layer

AMD, ARM = (Layer("amd", 1.0),), (Layer("arm", 2.0),)


def test_layers_are_those_of_the_architecture_else_of_all_else_of_any() -> None:
    known = KnownLayers()
    known.learn("web:1", "web@1", {"amd64": AMD, "arm64": ARM}, set())
    known.learn("db:1", "db@1", {"": AMD}, set())
    assert known.of("web:1", "arm64") == known.of("web@1", "arm64") == ARM
    assert known.of("web:1", "riscv64") == AMD
    assert known.of("db:1", "arm64") == AMD
    assert known.of("other:1", "arm64") is None
    assert known.by_any_name().keys() == {"web:1", "web@1", "db:1", "db@1"}


def test_the_same_answer_is_known_and_another_one_is_not() -> None:
    known = KnownLayers()
    known.learn("web:1", "web@1", {"": AMD}, set())
    assert known.says("web:1", "web@1", {"": AMD})
    assert not known.says("web:1", "web@2", {"": AMD})
    assert not known.says("web:1", "web@1", {"": ARM})


def test_the_oldest_that_nobody_wants_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_layers, "_MAX_IMAGES", 2)
    known = KnownLayers()
    for name in ("a", "b"):
        assert known.learn(name, f"{name}@1", {"": AMD}, {"a"}) == set()
    assert known.learn("c", "c@1", {"": AMD}, {"a"}) == {"b"}
    assert known.learn("d", "c@1", {"": AMD}, {"a", "c"}) == {"d"}
    assert known.digests.keys() == {"a", "c"}
