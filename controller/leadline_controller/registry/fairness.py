"""Whose image is looked up next. Pure.

Whoever may create pods chooses names: thousands of them, or of registries that never answer. So
turns go round, level by level: of the namespaces whose pods name images, of a namespace's
registries, of a registry's repositories, of a repository's images the one goes first that had no
turn for the longest time.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Set

Path = tuple[str, str, str]  # namespace, registry, repository


def paths(image: str, named_by: Set[str]) -> tuple[Path, ...]:
    """The ways to an image by its full name. named_by: NAMESPACE/ANYTHING of who names it; without
    any, it is of a namespace of its own kind."""
    name = image.partition("@")[0]
    registry, _, rest = name.partition("/")
    repository = rest.partition(":")[0]
    namespaces = {key.partition("/")[0] for key in named_by} or {""}
    return tuple((each, registry, repository) for each in sorted(namespaces))


class Queue:
    """The order of the images that are due. everything: the paths of every image, and when it had
    its last turn, 0 for never. due: of these the ones that may have a turn now, by name."""

    def __init__(
        self,
        everything: Iterable[tuple[Iterable[Path], int]],
        due: Iterable[tuple[str, Iterable[Path], int]],
    ) -> None:
        self._turns = Counter[tuple[str, ...]]()
        for each, turn in everything:
            for path in each if turn else ():
                for level in (path[:1], path[:2], path):
                    self._turns[level] = max(self._turns[level], turn)
        first: dict[tuple[str, str], tuple[int, int, str]] = {}
        for image, each, turn in due:
            for path in each:
                mine = self._turns[path], turn, image
                if path[:2] not in first or mine[:2] < first[path[:2]][:2]:
                    first[path[:2]] = mine
        self._first = {lane: image for lane, (_, _, image) in first.items()}

    def pop(self, busy: Mapping[str, str]) -> tuple[str, str] | None:
        """The next image, and the namespace whose turn it is; None if there is none. busy: each
        registry that is being asked, and for which namespace. The namespace with the fewest comes
        first, so that none holds all places with registries that take long."""
        running = Counter(busy.values())
        lanes = (lane for lane in self._first if lane[1] not in busy)
        lane = min(
            lanes,
            key=lambda lane: (running[lane[0]], self._turns[lane[:1]], self._turns[lane]),
            default=None,
        )
        return None if lane is None else (self._first.pop(lane), lane[0])


def share(images: Iterable[tuple[str, Iterable[Path]]], most: int) -> list[str]:
    """Of these images so many, by turns of the namespaces, registries and repositories."""
    tree: dict[str, dict[str, dict[str, dict[str, None]]]] = {}
    for image, ways in images:
        for namespace, registry, repository in ways:
            of_registry = tree.setdefault(namespace, {}).setdefault(registry, {})
            of_registry.setdefault(repository, {})[image] = None
    by_turns = _by_turns(
        _by_turns(_by_turns(iter(names) for names in of_one.values()) for of_one in each.values())
        for each in tree.values()
    )
    found: dict[str, None] = {}
    for image in by_turns:
        found[image] = None
        if len(found) >= most:
            break
    return list(found)


def _by_turns(groups: Iterable[Iterator[str]]) -> Iterator[str]:
    """One of each group, again and again."""
    turns = deque(groups)
    while turns:
        group = turns.popleft()
        for image in group:
            yield image
            turns.append(group)
            break
