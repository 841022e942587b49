"""The images that one node has, and how it pulls others."""

import statistics
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from leadline_controller.cluster.pull_times import PullSpeed, PullTimes
from leadline_controller.framework.image_layers import ARCH_LABEL
from leadline_controller.framework.model import Node, Pod

_MAX_PULLED = 256  # images of a node that its status does not have
_DELAYS = 9


@dataclass(slots=True)
class PullStart:
    """A pull that began, for this pod first."""

    pod_uid: str
    at_s: float
    held: frozenset[str] | None  # the layers that the node had then; None if nobody saw it begin


@dataclass(slots=True)
class HeldImages:
    """The images of one node, and its pulls."""

    node: Node
    pods: dict[str, Pod] = field(default_factory=dict)
    # Image -> when it was last seen to be there.
    pulled: dict[str, float] = field(default_factory=dict)
    starts: dict[str, PullStart] = field(default_factory=dict)  # image -> its pull
    free_at_s: float = -np.inf  # when the last pull ended
    # By uid, when a pod came that waits for images, None once the kubelet has asked for one.
    came_s: dict[str, float | None] = field(default_factory=dict)
    # How long after they came the kubelet asked for the last pods' images.
    delays_s: deque[float] = field(default_factory=lambda: deque(maxlen=_DELAYS))
    exact: PullTimes = field(default_factory=PullTimes)  # of pulls whose layers were known
    rough: PullTimes = field(default_factory=PullTimes)
    images: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()
    check_at_s: float = np.inf

    @property
    def architecture(self) -> str:
        """By its label, "" without one."""
        return self.node.labels.get(ARCH_LABEL, "")

    @property
    def speed(self) -> PullSpeed | None:
        """How fast it pulls; None before any pull was seen."""
        return self.exact.speed or self.rough.speed

    @property
    def delay_s(self) -> float:
        """How long after a pod came the kubelet asks for its images, s."""
        return statistics.median(self.delays_s) if self.delays_s else 0.0

    def held_before(self, image: str) -> frozenset[str]:
        """The layers that it had when the pull of this image began, those of now if nobody saw
        that."""
        start = self.starts.get(image)
        return self.held if start is None or start.held is None else start.held

    def note(self, image: str, at_s: float) -> None:
        """The image was there at this time."""
        self.pulled.pop(image, None)
        self.pulled[image] = at_s
        if len(self.pulled) > _MAX_PULLED:
            del self.pulled[next(iter(self.pulled))]
