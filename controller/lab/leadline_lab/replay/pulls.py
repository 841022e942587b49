"""When pods have their images: the kubelets' queues in a replay. Times are s on its clock."""

from dataclasses import replace
from math import inf

import numpy as np
from leadline_controller.framework.node_table import NodeTable
from leadline_controller.framework.view import Bools, ClusterView, Floats

from leadline_lab.replay.lives import Life
from leadline_lab.replay.past import Past


class Pulls:
    """The kubelets' queues: each pulls one image after the other."""

    def __init__(self, past: Past) -> None:
        self._past = past
        self._free_s: dict[str, float] = {}

    def waits_s(self, table: NodeTable, missing_mb: Floats, has_all: Bools, now_s: float) -> Floats:
        """Until a pod has its images that needs so many MB which the nodes neither have nor have
        queued; NaN if the speed is not known. All of shape (n,)."""
        boards, queue_s = self._past.boards(table.names), np.zeros(len(table.names))
        for node, free_s in self._free_s.items():
            if free_s > now_s and node in table.index:
                queue_s[table.index[node]] = free_s - now_s
        pull_s = missing_mb * 8 / boards.mbps + boards.overhead_s
        # What is not missing is in the queue already.
        pull_s = np.where(missing_mb == 0, 0.0, pull_s)
        return np.where(has_all, 0.0, np.maximum(queue_s, boards.prepare_s) + pull_s)

    def take(self, node: str, until_s: float) -> float:
        """The queue is busy until then. Returns when it begins with this."""
        before_s = self._free_s.get(node, -inf)
        self._free_s[node] = max(before_s, until_s)
        return before_s


class Waits:
    """How long a pod would wait on each node of a view. images_s: for its images, and start_s:
    until it is ready then; starting_s: both without pulls; shape (n,), NaN if unknown."""

    def __init__(
        self, past: Past, pulls: Pulls, view: ClusterView, life: Life, now_s: float
    ) -> None:
        self._view, self._life = view, life
        table = view.table
        self.knows_images = view.images.knows(table, life.pod)
        self.images_s = past.pulls_s(life, table.names)
        if self.knows_images:
            self._missing_mb = view.images.missing_mb(table, life.pod)
            has_all = view.images.has_all(table, life.pod)
            known_s = pulls.waits_s(table, self._missing_mb, has_all, now_s)
            self.images_s = np.where(np.isnan(known_s), self.images_s, known_s)
        self.start_s = past.starts_s(life, table.names, self.images_s > 0)
        prepare_s = np.where(self.images_s > 0, past.boards(table.names).prepare_s, 0.0)
        self.starting_s = self.start_s + prepare_s

    def pulled(self, at: int) -> dict[str, float]:
        """What the node has to pull: each image with its MB."""
        if not self.knows_images or self._missing_mb[at] == 0:
            return {}
        pod, table, found = self._life.pod, self._view.table, dict[str, float]()
        for image in dict.fromkeys((*pod.init_images, *pod.images)):
            alone = replace(pod, images=(image,), init_images=())
            found[image] = float(self._view.images.missing_mb(table, alone)[at])
        return {image: mb for image, mb in found.items() if mb > 0}
