"""When pods have their images: the kubelets' queues in a replay. Times are s on its clock."""

from dataclasses import replace
from math import inf, isnan, nan

from leadline_controller.framework.view import ClusterView

from leadline_lab.replay.lives import Life
from leadline_lab.replay.past import Past


class Pulls:
    """The kubelets' queues: each pulls one image after the other."""

    def __init__(self, past: Past) -> None:
        self._past = past
        self._free_s: dict[str, float] = {}

    def wait_s(self, node: str, missing_mb: float, now_s: float, *, has_all: bool) -> float:
        """Until a pod has its images that needs so many MB which the node neither has nor has
        queued; NaN if the speed is not known."""
        if has_all:
            return 0.0
        begin_s = max(self._free_s.get(node, now_s), now_s)
        if missing_mb == 0:
            return begin_s - now_s  # all is in the queue already
        speed = self._past.speed(node)
        return float("nan") if speed is None else begin_s - now_s + speed.seconds(missing_mb)

    def take(self, node: str, until_s: float) -> float:
        """The queue is busy until then. Returns when it begins with this."""
        before_s = self._free_s.get(node, -inf)
        self._free_s[node] = max(before_s, until_s)
        return before_s


class Waits:
    """How long a pod would wait for its images on each node of a view."""

    def __init__(
        self, past: Past, pulls: Pulls, view: ClusterView, life: Life, now_s: float
    ) -> None:
        self._past, self._pulls, self._view = past, pulls, view
        self._life, self._now_s = life, now_s
        self.knows_images = view.images.knows(view.table, life.pod)
        if self.knows_images:
            self._missing_mb = view.images.missing_mb(view.table, life.pod)
            self._has_all = view.images.has_all(view.table, life.pod)

    def on(self, at: int) -> float:
        """On the node with this index, s; NaN if unknown."""
        node, found = self._view.table.names[at], nan
        if self.knows_images:
            missing_mb, has_all = float(self._missing_mb[at]), bool(self._has_all[at])
            found = self._pulls.wait_s(node, missing_mb, self._now_s, has_all=has_all)
        return self._past.pull_s(self._life, node) if isnan(found) else found

    def pulled(self, at: int) -> dict[str, float]:
        """What the node has to pull: each image with its MB."""
        if not self.knows_images or self._missing_mb[at] == 0:
            return {}
        pod, table, found = self._life.pod, self._view.table, dict[str, float]()
        for image in dict.fromkeys((*pod.init_images, *pod.images)):
            alone = replace(pod, images=(image,), init_images=())
            found[image] = float(self._view.images.missing_mb(table, alone)[at])
        return {image: mb for image, mb in found.items() if mb > 0}
