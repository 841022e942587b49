"""The cores of a simulated node, shared by the tasks that run on it.

Sharing is egalitarian, as the kernel's fair scheduler does it: every task gets the same, none
gets more than its limit or can use, and what one leaves goes to the others (max-min fair).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np
import simpy
from leadline_controller.strategies.shared.contention import contention_s

_SAME_MOMENT_S = 1e-9


@dataclass(frozen=True, slots=True)
class Contention:
    """What sharing a node costs (DACS Section 6.1).

    Eq. 18 gives the delay Gamma of a pod beside zeta others: a context switch, and competition
    that doubles with every pod. Switches go on for as long as pods share the node, so each
    `slice_s` core-seconds of work take Gamma longer; a task alone pays nothing. All in seconds.
    """

    beta_cs: float
    beta_rc: float
    slice_s: float

    def efficiency(self, running: int) -> float:
        """The share of its cores' time that each of `running` tasks turns into work, 0 to 1."""
        gamma_s = float(contention_s(np.array([running - 1]), self.beta_cs, self.beta_rc)[0])
        return self.slice_s / (self.slice_s + gamma_s)


class _Task:
    __slots__ = ("done", "left_core_s", "limit_cores", "rate_cores")

    def __init__(self, work_core_s: float, limit_cores: float, done: simpy.Event) -> None:
        self.left_core_s = work_core_s
        self.limit_cores = limit_cores
        self.rate_cores = 0.0
        self.done = done


class CpuModel:
    """A node's cores in a simulation.

    env: the simulation, its clock in seconds. cores: how many, more than 0; a fraction is a
    slower node. contention: what tasks cost each other beyond the sharing itself; None: nothing.
    """

    def __init__(
        self, env: simpy.Environment, cores: float, contention: Contention | None = None
    ) -> None:
        _check("cores", cores, positive=True)
        self._env = env
        self._cores = cores
        self._contention = contention
        self._tasks: list[_Task] = []
        self._advanced_at_s = float(env.now)
        self._due: Sequence[_Task] = ()
        self._wake: simpy.Event | None = None

    @property
    def running(self) -> int:
        """How many tasks are at work now."""
        return len(self._tasks)

    def run(self, work_core_s: float, limit_cores: float = inf) -> simpy.Event:
        """Start a task now; the event comes when it is done.

        work_core_s: seconds that it takes on one core by itself, 0 or more. limit_cores: how
        many cores it can use at once, more than 0; 1 is a program with a single thread. Raises
        ValueError.
        """
        _check("work_core_s", work_core_s)
        if limit_cores != inf:
            _check("limit_cores", limit_cores, positive=True)
        task = _Task(work_core_s, limit_cores, self._env.event())
        if work_core_s == 0:
            return task.done.succeed()
        self._advance()
        self._tasks.append(task)
        self._share()
        return task.done

    def _advance(self) -> None:
        """Book the work that was done since the last change."""
        elapsed_s = self._env.now - self._advanced_at_s
        for task in self._tasks:
            task.left_core_s = max(task.left_core_s - elapsed_s * task.rate_cores, 0.0)
        self._advanced_at_s = self._env.now

    def _share(self) -> None:
        """Divide the cores anew and wait for whoever is done first."""
        self._wake, self._due = None, ()
        if not self._tasks:
            return
        efficiency = self._contention.efficiency(self.running) if self._contention else 1.0
        given = fair_shares([task.limit_cores for task in self._tasks], self._cores)
        for task, cores in zip(self._tasks, given, strict=True):
            task.rate_cores = cores * efficiency
        left_s = [task.left_core_s / task.rate_cores for task in self._tasks]
        first_s = min(left_s)
        # Named now, because rounding may leave a hair of their work at that moment.
        self._due = [
            task
            for task, s in zip(self._tasks, left_s, strict=True)
            if s <= first_s + _SAME_MOMENT_S
        ]
        self._wake = self._env.timeout(first_s)
        self._wake.callbacks.append(self._finish)

    def _finish(self, wake: simpy.Event) -> None:
        if wake is not self._wake:
            return  # the cores were divided anew since
        self._advance()
        due = self._due
        self._tasks = [task for task in self._tasks if task not in due]
        for task in due:
            task.done.succeed()
        self._share()


def fair_shares(limits: Sequence[float], capacity: float) -> list[float]:
    """Max-min fair: `capacity` divided equally, none above its limit, and what some leave
    divided equally among the others. In the order of `limits`, in their unit."""
    shares = [0.0] * len(limits)
    left, waiting = capacity, len(limits)
    for at in sorted(range(len(limits)), key=lambda i: limits[i]):
        shares[at] = min(limits[at], left / waiting)
        left -= shares[at]
        waiting -= 1
    return shares


def _check(name: str, value: float, *, positive: bool = False) -> None:
    if not isfinite(value) or value < 0 or (positive and value == 0):
        least = "more than 0" if positive else "0 or more"
        raise ValueError(f"{name}: expected a number, {least}, got {value!r}")
