"""The cores of a simulated node, shared by the tasks that run on it.

Sharing is max-min fair, like that of the kernel's fair scheduler: every task gets the same, no task
gets more than its limit, and what a task leaves goes to the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import simpy
from leadline_controller.strategies.shared.delays import contention_s

_SAME_MOMENT_S = 1e-9


@dataclass(frozen=True, slots=True)
class Contention:
    """The cost of sharing a node (DACS Section 6.1). All in seconds.

    Eq. 18 gives the delay Gamma of a pod beside zeta others: a context switch, and competition
    that doubles with every pod. Switches go on while pods share the node, so each `slice_s`
    core-seconds of work take Gamma longer. A task alone has no delay.
    """

    beta_cs: float
    beta_rc: float
    slice_s: float

    def efficiency(self, running: int) -> float:
        """The share of its core time that each of `running` tasks turns into work, 0 to 1."""
        gamma_s = float(contention_s(np.array([running - 1]), self.beta_cs, self.beta_rc)[0])
        return self.slice_s / (self.slice_s + gamma_s)


@dataclass(slots=True, eq=False)
class _Task:
    left_core_s: float
    limit_cores: float
    done: simpy.Event
    rate_cores: float = 0.0


class CpuModel:
    """A node's cores in a simulation.

    env: the simulation, its clock in seconds. cores: more than 0; a fraction is a slower node.
    contention: the cost of sharing; None: there is none.
    """

    def __init__(
        self, env: simpy.Environment, cores: float, contention: Contention | None = None
    ) -> None:
        self._env, self._cores, self._contention = env, cores, contention
        self._tasks: list[_Task] = []
        self._advanced_at_s = float(env.now)
        self._due: Sequence[_Task] = ()  # the tasks that end with the timer
        self._timer: simpy.Event | None = None

    @property
    def running(self) -> int:
        """The number of tasks that run now."""
        return len(self._tasks)

    def run(self, work_core_s: float, limit_cores: float = inf) -> simpy.Event:
        """Start a task now and return the event of its end.

        work_core_s: the seconds that it takes alone on one core, 0 or more. limit_cores: the cores
        that it can use at once, more than 0; 1 for a single thread.
        """
        task = _Task(work_core_s, limit_cores, self._env.event())
        if work_core_s == 0:
            return task.done.succeed()
        self._advance()
        self._tasks.append(task)
        self._share()
        return task.done

    def _advance(self) -> None:
        """Subtract the work done since the last change."""
        elapsed_s = self._env.now - self._advanced_at_s
        for task in self._tasks:
            task.left_core_s = max(task.left_core_s - elapsed_s * task.rate_cores, 0.0)
        self._advanced_at_s = self._env.now

    def _share(self) -> None:
        """Divide the cores and set a timer for the task that ends first."""
        self._timer, self._due = None, ()
        if not self._tasks:
            return
        efficiency = self._contention.efficiency(self.running) if self._contention else 1.0
        given = fair_shares([task.limit_cores for task in self._tasks], self._cores)
        for task, cores in zip(self._tasks, given, strict=True):
            task.rate_cores = cores * efficiency
        left_s = [task.left_core_s / task.rate_cores for task in self._tasks]
        first_s = min(left_s)
        # Listed now, because rounding may leave some of their work when the timer fires.
        end_s = first_s + _SAME_MOMENT_S
        self._due = [task for task, s in zip(self._tasks, left_s, strict=True) if s <= end_s]
        self._timer = self._env.timeout(first_s)
        self._timer.callbacks.append(self._finish)

    def _finish(self, timer: simpy.Event) -> None:
        if timer is not self._timer:
            return  # the cores were divided again since this timer was set
        self._advance()
        self._tasks = [task for task in self._tasks if task not in self._due]
        for task in self._due:
            task.done.succeed()
        self._share()


def fair_shares(limits: Sequence[float], capacity: float) -> list[float]:
    """Max-min fair shares of `capacity`, none above its limit. In the order of `limits`, in their
    unit."""
    shares = [0.0] * len(limits)
    left, waiting = capacity, len(limits)
    for at in sorted(range(len(limits)), key=lambda i: limits[i]):
        shares[at] = min(limits[at], left / waiting)
        left -= shares[at]
        waiting -= 1
    return shares
