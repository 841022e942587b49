"""A run of one method: applications arrive, their replicas are placed and the images pulled."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import simpy
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Strategy, decide_in_turn
from leadline_controller.framework.images import ImageTable
from leadline_controller.framework.model import CPU, MEMORY, PODS, Image, Node, Pod
from leadline_controller.framework.view import ClusterView, NodeTable

from leadline_experiments.infrastructure_aware.stand_ins import Application, Topology
from leadline_experiments.models.cluster import view_of
from leadline_experiments.models.network import Network
from leadline_experiments.models.registry import Registry

_MIB = 1024**2
# kube-scheduler's defaults for a container without requests: 100m and 200 MiB.
POD_REQUESTS = {CPU: 100, MEMORY: 200 * _MIB, PODS: 1}
NODE_PODS = 24  # the pods that fill a node; each costs it 10 / 24 points of spreading
NODE_ALLOCATABLE = {
    CPU: NODE_PODS * POD_REQUESTS[CPU],
    MEMORY: NODE_PODS * POD_REQUESTS[MEMORY],
    PODS: 110,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run. provision_s: of each replica, from its scheduling until its last layer
    has arrived. replicas, stored_mb: of each node. hits, misses: numbers of layers."""

    provision_s: Sequence[float]
    replicas: Sequence[int]
    stored_mb: Sequence[float]
    hits: int
    misses: int


def simulate(
    topology: Topology,
    images: Sequence[Image],
    applications: Sequence[Application],
    strategy: Strategy,
    random: Random,
) -> Outcome:
    """Run until the last replica is provisioned. applications: in order of time."""
    run = _Run(topology, images, strategy, random)
    run.env.process(run.arrivals(applications))
    run.env.run()
    stores = run.registry.stores.values()
    return Outcome(
        provision_s=run.provision_s,
        replicas=run.view.requested_of(PODS).tolist(),
        stored_mb=[store.stored_mb for store in stores],
        hits=sum(store.hits for store in stores),
        misses=sum(store.misses for store in stores),
    )


class _Run:
    def __init__(
        self, topology: Topology, images: Sequence[Image], strategy: Strategy, random: Random
    ) -> None:
        self.env = simpy.Environment()
        network = Network(self.env, topology.capacity_mbps, topology.routes)
        self.registry = Registry(self.env, network, topology.routes)
        self.provision_s: list[float] = []
        # After the last placement; the layers of nodes are those of the placement before.
        self.view = view_of(
            [
                Node(
                    name, NODE_ALLOCATABLE, tier="edge", registry_mbps=topology.bandwidth_mbps(name)
                )
                for name in topology.routes
            ]
        )
        self._images = ImageTable.of(images)
        self._strategy, self._random = strategy, random

    def arrivals(self, applications: Sequence[Application]) -> simpy.events.ProcessGenerator:
        for application in applications:
            yield self.env.timeout(max(application.start_s - self.env.now, 0.0))
            self._place(application)

    def _place(self, application: Application) -> None:
        pods = [
            Pod(
                "default",
                f"{application.name}-{i}",
                requests=POD_REQUESTS,
                images=(application.image.name,),
                labels={"app": application.name},
            )
            for i in range(application.replicas)
        ]
        view = self._view_now()
        for decision, after in decide_in_turn(view, pods, FILTERS, self._strategy, self._random):
            if decision.node is None:
                raise ValueError(f"{decision.pod.key}: {decision.why}")
            self.env.process(self._provision(decision.node, application.image))
            self.view = after

    def _provision(self, node: str, image: Image) -> simpy.events.ProcessGenerator:
        started_s = self.env.now
        yield self.registry.pull(node, image.layers)
        self.provision_s.append(float(self.env.now - started_s))

    def _view_now(self) -> ClusterView:
        """The view with the layers that the nodes have and await now."""
        stores = [self.registry.stores[node.name] for node in self.view.nodes]
        nodes = [
            node
            if len(node.image_layers) == len(store.cached)  # it never loses one
            else replace(node, image_layers=frozenset(store.cached))
            for node, store in zip(self.view.nodes, stores, strict=True)
        ]
        queued: dict[str, frozenset[int]] = {}
        for at, store in enumerate(stores):
            for digest in store.pending:
                queued[digest] = queued.get(digest, frozenset()) | {at}
        queue_mb = {at: mb for at, store in enumerate(stores) if (mb := store.waiting_mb)}
        return replace(
            self.view,
            table=NodeTable(nodes),
            placed_in_run=np.zeros_like(self.view.placed_in_run),
            images=replace(self._images, queued=queued, queue_mb=queue_mb),
        )
