"""Whose image comes next."""

from __future__ import annotations

import pytest
from leadline_controller.registry.fairness import Queue, paths, share


@pytest.mark.parametrize(
    ("image", "named_by", "expected"),
    [
        ("r.example/a/b:1", {"one/"}, [("one", "r.example", "a/b")]),
        ("r.example:5000/a@sha256:0", {"one/s"}, [("one", "r.example:5000", "a")]),
        ("r/a:1@sha256:0", {"two/", "one/", "one/s"}, [("one", "r", "a"), ("two", "r", "a")]),
        ("r/a:1", set(), [("", "r", "a")]),
        ("nonsense", set(), [("", "nonsense", "")]),
    ],
)
def test_an_image_has_a_path_from_each_namespace(
    image: str, named_by: set[str], expected: list[tuple[str, str, str]]
) -> None:
    assert list(paths(image, named_by)) == expected


def order(images: dict[str, tuple[set[str], int]], busy: dict[str, str], most: int) -> list[str]:
    """The images that a Queue gives, which stay under way."""
    all_of = [(name, paths(name, by), turn) for name, (by, turn) in images.items()]
    queue = Queue(((each, turn) for _, each, turn in all_of), all_of)
    found: list[str] = []
    while len(found) < most and (first := queue.pop(busy)) is not None:
        image, namespace = first
        busy[image.partition("/")[0]] = namespace
        found.append(image)
    return found


@pytest.mark.parametrize(
    ("images", "busy", "expected"),
    [
        # One of each registry.
        (
            {"r/a:1": ({"n/"}, 0), "r/a:2": ({"n/"}, 0), "s/a:1": ({"n/"}, 0)},
            {},
            ["r/a:1", "s/a:1"],
        ),
        # The namespace, the registry, the repository, the image that waits longest.
        ({"r/a:1": ({"n/"}, 2), "s/a:1": ({"m/"}, 1)}, {}, ["s/a:1", "r/a:1"]),
        ({"r/a:1": ({"n/"}, 2), "s/a:1": ({"n/"}, 1)}, {}, ["s/a:1", "r/a:1"]),
        ({"r/a:1": ({"n/"}, 2), "r/a:2": ({"n/"}, 0), "r/b:1": ({"n/"}, 1)}, {}, ["r/b:1"]),
        ({"r/a:1": ({"n/"}, 2), "r/a:2": ({"n/"}, 1)}, {}, ["r/a:2"]),
        # The namespace with the fewest under way.
        ({"r/a:1": ({"n/"}, 0), "s/a:1": ({"m/"}, 9)}, {"t": "n"}, ["s/a:1", "r/a:1"]),
        (
            {"r/a:1": ({"n/"}, 0), "s/a:1": ({"n/"}, 0), "t/a:1": ({"m/"}, 9)},
            {},
            ["r/a:1", "t/a:1", "s/a:1"],
        ),
        # A registry that is being asked waits.
        ({"r/a:1": ({"n/"}, 0)}, {"r": "m"}, []),
    ],
)
def test_who_waits_longest_comes_first(
    images: dict[str, tuple[set[str], int]], busy: dict[str, str], expected: list[str]
) -> None:
    assert order(images, busy, len(images)) == expected


def test_what_can_be_kept_is_shared() -> None:
    evil = [(f"r{number}/x:{number}", {"evil/"}) for number in range(20)]
    home = [(f"r/a:{number}", {"home/"}) for number in range(3)]
    both = [("r/b:1", {"evil/", "home/"})]
    kept = share(((image, paths(image, by)) for image, by in [*evil, *home, *both]), 8)
    assert len(kept) == len(set(kept)) == 8
    assert {"r/a:0", "r/a:1", "r/a:2", "r/b:1"} <= set(kept)
    assert share([], 3) == []
    assert share([("r/a:1", paths("r/a:1", set()))], 3) == ["r/a:1"]
