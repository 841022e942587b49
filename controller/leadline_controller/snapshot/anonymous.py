"""Other names for whatever somebody has named, for snapshots that strangers may read.

The same name is the same replacement in one file, and nothing leads back. Names of one kind are
numbered in their order, so that decisions in which the order of names plays a part stay the same.
"""

from collections import defaultdict
from collections.abc import Mapping

from leadline_controller.framework.selectors import integer_of
from leadline_controller.kubeobjects.names import Names

_UNSAID = "not told"


class Collected(Names):
    """Notes all names on a first writing."""

    def __init__(
        self, nodes: frozenset[str], ephemeral: Mapping[tuple[str, str], tuple[str, str]]
    ) -> None:
        super().__init__(nodes, ephemeral)
        self._found: defaultdict[str, set[str]] = defaultdict(set)
        self._compared: set[str] = set()

    def __call__(self, kind: str, name: str) -> str:
        """The name, noted."""
        self._found[kind].add(name)
        return name

    def compared(self, key: str) -> None:
        """See Names."""
        self._compared.add(key)

    def numbered(self) -> "Numbered":
        """The names for the second writing."""
        other = {}
        for kind, found in self._found.items():
            width = len(str(len(found)))
            for number, name in enumerate(sorted(found), start=1):
                called = f"{kind}-{number:0{width}}"
                # What is read as an address must be one: those are for documentation.
                other[kind, name] = f"2001:db8::{number:x}" if kind == "address" else called
        return Numbered(self, other, frozenset(self._compared))


class Numbered(Names):
    """Kind and number instead of each name."""

    def __init__(
        self, names: Names, other: Mapping[tuple[str, str], str], compared: frozenset[str]
    ) -> None:
        super().__init__(names.nodes, names.ephemeral)
        self._other, self._compared = other, compared

    def __call__(self, kind: str, name: str) -> str:
        """The replacement. A uid stays: it is a random number, by which ties are broken."""
        return name if kind == "uid" else self._other[kind, name]

    def value(self, key: str, value: str) -> str:
        """As Names; but numbers that are compared as such stay."""
        if key in self._compared and integer_of(value) is not None:
            return value
        return super().value(key, value)

    def sentence(self, text: str) -> str:  # noqa: ARG002  # anything may be in it
        """Nothing of it."""
        return _UNSAID
