"""Plans with failures from a seed: refused evictions, lost answers, nodes and pods that vanish,
kubelets that never report, and controllers that are killed anywhere. No pod is lost, no budget is
broken, and no extra replica stays. `make test-moves` tries 200 plans, and `make test-experiments` a
part."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import suppress
from random import Random

import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule
from leadline_controller.history.times import Moment
from leadline_controller.rescheduling.journal import HourlyBudgets
from leadline_controller.rescheduling.plan import Plan, PlannedMove
from leadline_controller.rescheduling.rescheduler import ReschedulingSettings
from leadline_controller.settings import Settings
from leadline_controller.wiring import Controller, running

from tests.controller.scheduling.harness import node
from tests.kube.moving import Liking
from tests.support.leadership import Leads
from tests.support.manual_clock import ManualClock
from tests.support.workload_cluster import Faults, FaultyApi, WorkloadCluster

PLANS = int(os.environ.get("MOVES_PLANS", "40"))
NODES = ["n1", "n2", "n3", "n4"]
BUDGETS = HourlyBudgets(workload=2, node=4, cluster=6)
HOUR_S = 3600.0


class World:
    """One cluster, and one controller after the other."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = ManualClock(1_800_000_000.0)
        faults = Faults(self.random)
        self.cluster = WorkloadCluster([node(n) for n in NODES], faults, self.clock.now_s)
        for i in range(self.random.randint(2, 4)):
            replicas = self.random.randint(1, 3)
            least = self.random.choice([None, replicas - 1, replicas])
            scaled = self.random.random() < 0.4
            self.cluster.add_workload(f"d{i}", replicas, least, scaled=scaled)
        self.likes: dict[str, float] = {}
        self.outcomes: Counter[str] = Counter()
        self.kills = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._leads = Leads()
        self.controller = self.start()

    def start(self) -> Controller:
        self._leads = leads = Leads()
        settings = ReschedulingSettings(
            "manual", cooldown_s=0.0, timeout_s=12.0, budgets=BUDGETS, min_gain=0.1
        )
        api = FaultyApi(self.cluster, leads)
        made = Controller(
            Settings(warm_up_s=0.0, rescheduling=settings),
            api,
            Rule(Liking(self.likes), FILTERS, Random(1)),
            leadership=leads,
            clock=self.clock,
            now=lambda: Moment("boot", self.clock.now_s(), 0.0),
        )

        async def run() -> None:
            async with running(*made.placing()) as placing:
                await placing

        self._tasks.append(asyncio.create_task(run()))
        self.controller = made
        return made

    async def kill(self) -> None:
        """End a controller between two of its awaits, and start another one."""
        self.kills += 1
        self._leads.live = False
        task = self._tasks.pop()
        task.cancel()
        # A killed process writes nothing more; this one may try, and its fence is closed.
        for _ in range(20):
            await asyncio.sleep(0)
        self.start()

    async def end(self) -> None:
        self._leads.live = False
        for task in self._tasks:
            task.cancel()
        await self.clock.advance(5)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def run_for(self, seconds: float, *, calm: bool = False) -> None:
        """Let time pass; unless it is calm, things happen."""
        for _ in range(int(seconds)):
            self.cluster.tick()
            await self.clock.advance(1.0)
            if not calm:
                await self._misfortune()

    async def _misfortune(self) -> None:
        dice, random, cluster = self.random.random(), self.random, self.cluster
        if dice < 0.03:
            await self.kill()
        elif dice < 0.05 and cluster.pods:
            with suppress(KeyError):
                cluster.remove_pod(random.choice(cluster.pods).key)
        elif dice < 0.06 and len(cluster.nodes) > 2:
            cluster.remove_node(random.choice(cluster.nodes).name)
        elif dice < 0.12:
            cluster.never_ready ^= {random.choice(NODES)}
        elif dice < 0.15:
            faults = cluster.faults
            faults.before, faults.after = random.choice([(0.0, 0.0), (0.2, 0.1), (0.6, 0.3)])
            faults.refused, faults.conflict = random.choice([(0.0, 0.0), (0.5, 0.4)])

    async def calm_down(self) -> None:
        """Let all be well again, and wait until nothing happens any more."""
        self.cluster.faults.stop()
        self.cluster.never_ready.clear()
        for name in NODES:
            if name not in {each.name for each in self.cluster.nodes}:
                self.cluster.put_node(node(name))
        await self.run_for(150, calm=True)

    def plan(self) -> Plan:
        """Some moves of running pods, sensible or not."""
        random, moves = self.random, []
        names = [each.name for each in self.cluster.nodes]
        bound = [pod for pod in self.cluster.pods if pod.node_name and not pod.terminating]
        for pod in random.sample(bound, min(len(bound), random.randint(1, 3))):
            others = [name for name in names if name != pod.node_name]
            moves.append(PlannedMove(pod, pod.node_name or "", random.choice(others), "a test"))
        return Plan("liking", "higher", tuple(moves))


async def one_plan(seed: int) -> World:
    world = World(seed)
    try:
        await world.run_for(12, calm=True)
        world.cluster.witness.begun.clear()
        world.likes.update({name: world.random.uniform(1, 10) for name in NODES})
        done = world.controller.rescheduler.submit(world.plan())
        await world.run_for(world.random.randint(20, 60))
        if done.done() and not done.cancelled():
            world.outcomes.update(each.ending for each in done.result())
        else:
            world.outcomes["the controller was killed"] += 1
        await world.calm_down()
    finally:
        await world.end()
    return world


def lost(world: World) -> list[str]:
    found = []
    for name, replicas in world.cluster.wanted.items():
        workload = world.cluster._workloads[f"default/{name}"]
        state = (world.cluster.healthy(name), workload.replicas, workload.extra)
        if state != (replicas, replicas, None):
            found.append(f"{name}: wanted {replicas}, has (ready, replicas, extra) {state}")
    return found


def overspent(world: World) -> list[str]:
    """The hours in which more moves began than the budgets allow."""
    begun, found = world.cluster.witness.begun, []
    for at, _ in begun:
        hour = [name for then, name in begun if at - HOUR_S < then <= at]
        if len(hour) > BUDGETS.cluster:
            found.append(f"{len(hour)} in the cluster")
        found += [f"{n} of {w}" for w, n in Counter(hour).items() if n > BUDGETS.workload]
    return found


@pytest.mark.timeout(300)
@pytest.mark.experiment
async def test_no_pod_is_lost_and_no_budget_broken_in_plans_with_failures() -> None:
    outcomes: Counter[str] = Counter()
    moved = kills = 0
    for seed in range(PLANS):
        world = await one_plan(seed)
        assert lost(world) == [], f"seed {seed}"
        assert world.cluster.witness.broken == [], f"seed {seed}"
        assert overspent(world) == [], f"seed {seed}"
        outcomes += world.outcomes
        moved, kills = moved + len(world.cluster.witness.begun), kills + world.kills
    print(f"\n{PLANS} plans: {dict(outcomes)}; {moved} pods taken away, {kills} controllers killed")
    assert min(outcomes[each] for each in ("moved", "refused", "failed", "cancelled")) >= 1
    assert kills >= PLANS / 2
