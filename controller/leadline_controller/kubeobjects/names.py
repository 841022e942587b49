"""What the names in a written manifest are called, so that one writer serves both a faithful copy
and one in which nobody's names are left."""

from collections.abc import Mapping
from types import MappingProxyType

from leadline_controller.framework.model import NODE_PEER
from leadline_controller.framework.node_table import CLASS_LABEL
from leadline_controller.framework.services import PER_REPLICA_LABELS, TEMPLATE_HASH
from leadline_controller.parsing.addresses import read_unicast

HOSTNAME = "kubernetes.io/hostname"
# Keys of labels and taints in these namespaces are Kubernetes' or Leadline's own words.
_KNOWN_PREFIXES = frozenset(
    (
        *("kubernetes.io", "beta.kubernetes.io", "node.kubernetes.io", "topology.kubernetes.io"),
        *("failure-domain.beta.kubernetes.io", "app.kubernetes.io", "leadline.dev"),
    )
)
_ROLES = tuple(f"node-role.kubernetes.io/{each}" for each in ("control-plane", "master", "worker"))
_KNOWN_KEYS = PER_REPLICA_LABELS | frozenset(_ROLES)
# Keys whose values are words or numbers with a meaning, and no names.
_WORDS = frozenset(
    (
        *(f"{each}kubernetes.io/{what}" for each in ("", "beta.") for what in ("arch", "os")),
        *("leadline.dev/tier", "leadline.dev/bandwidth-mbps", "leadline.dev/preferred-node"),
    )
)
_FLAGS = ("", "true", "false")
# Keys whose values are names of objects, with the kind of these.
_NAMING = {
    HOSTNAME: "node",
    "kubernetes.io/metadata.name": "namespace",
    "statefulset.kubernetes.io/pod-name": "pod",
}
_ZONES = "__"  # between several zones in a label of a volume


class Names:
    """Names as they are; a subclass replaces them. nodes: the names of the cluster's nodes.
    ephemeral: namespace and name of the claims that pods make for themselves, each with the names
    of pod and volume, of which Kubernetes makes its name."""

    def __init__(
        self,
        nodes: frozenset[str] = frozenset(),
        ephemeral: Mapping[tuple[str, str], tuple[str, str]] = MappingProxyType({}),
    ) -> None:
        self.nodes, self.ephemeral = nodes, ephemeral

    def __call__(self, kind: str, name: str) -> str:  # noqa: ARG002  # a subclass needs it
        """What this object is called. kind: what names are told apart by, such as node."""
        return name

    def sentence(self, text: str) -> str:
        """A sentence for people, in which any name may be."""
        return text

    def compared(self, key: str) -> None:
        """The values of this label are compared as numbers (Gt, Lt)."""

    def claim(self, namespace: str, name: str) -> str:
        """A claim."""
        made_of = self.ephemeral.get((namespace, name))
        if made_of is None:
            return self("claim", name)
        return f"{self('pod', made_of[0])}-{self('claim', made_of[1])}"

    def owner(self, name: str, template_hash: str) -> str:
        """A controller of pods, whose name may end with the hash of their template."""
        base = name.removesuffix(f"-{template_hash}") if template_hash else name
        if base == name:
            return self("owner", name)
        return f"{self('owner', base)}-{self.value(TEMPLATE_HASH, template_hash)}"

    def peer(self, name: str) -> str:
        """What a pod calls one of its peers. Services are called as controllers of pods are, as
        such a name may be either's."""
        if read_unicast(name) is not None:
            return self("address", name)
        if name.startswith(NODE_PEER):
            return NODE_PEER + self("node", name.removeprefix(NODE_PEER))
        own, dot, namespace = name.rpartition(".")
        return (
            f"{self('owner', own)}.{self('namespace', namespace)}" if dot else self("owner", name)
        )

    def key(self, key: str) -> str:
        """The key of a label or taint."""
        is_known = key in _KNOWN_KEYS or key.rpartition("/")[0] in _KNOWN_PREFIXES
        return key if is_known or not key else self("label", key)

    def value(self, key: str, value: str) -> str:
        """The value of a label or taint with this key."""
        if key in _WORDS or value in _FLAGS:
            return value
        if key.endswith(("/zone", "/region")):
            return _ZONES.join(each and self("value", each) for each in value.split(_ZONES))
        return self(_NAMING.get(key, "value"), value)

    def labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Labels, in their order."""
        return {self.key(key): self.value(key, value) for key, value in labels.items()}

    def board(self, name: str) -> str:
        """A node, or a class of nodes, in a profile."""
        return self("node", name) if name in self.nodes else self.value(CLASS_LABEL, name)
