"""Runs kube-scheduler's own plugins, without an API server, to find the nodes of a pod, and how
much the pod prefers each.

    with Oracle() as oracle:
        verdicts = oracle.verdicts({"nodes": [...], "pods": [...], "pod": {...}})

A case is a dict with the Kubernetes object `pod`, which asks for a place, and lists of objects
as `nodes`, `pods` (residents, with their spec.nodeName), `namespaces`, `services`, `replicaSets`,
`statefulSets`, `replicationControllers`, `pvcs`, `pvs`, `storageClasses`, `csiNodes`, `csiDrivers`,
`csiStorageCapacities`, `volumeAttachments` and `podDisruptionBudgets`. The objects are written as
for an API server: defaults are filled in, what is not valid is an error, but a status that is given
counts, and the namespaces that pods name need not be listed.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

from tests.kube.daemon import LOG_LINES, program, stop

Case = dict[str, Any]
Verdicts = dict[str, dict[str, str | None]]


@dataclass(frozen=True)
class Scored:
    """What a Score plugin gives each node, by name. weight: in the default profile. raw and
    normalized are empty if the plugin skips the pod."""

    weight: int
    raw: dict[str, int]
    normalized: dict[str, int]


@dataclass(frozen=True)
class Choice:
    """What the plugin DefaultPreemption makes of a pod that fits nowhere.

    `fits` are the nodes that it fits without; with any, the rest is empty. `refused` says why the
    pod may preempt nobody. `candidates` are by node: the victims as namespace/name, the most
    important first, and how many of them are against their budgets. `chosen` is one of those that
    tie.
    """

    fits: set[str]
    refused: str
    candidates: dict[str, tuple[tuple[str, ...], int]]
    chosen: str


@dataclass(frozen=True)
class Judged:
    """The result of a case.

    `verdicts` has, by node and plugin, the reason for which the plugin refuses, None for none.
    `scores` has, by plugin, the scores of the nodes that none refuses; it is empty without any.
    `stored` is the case with all objects as controllers see them: with defaults, and with
    matchLabelKeys put into the selectors. An API server would not take it as a new case.
    `preemption` is None unless the oracle was started for it.
    """

    verdicts: Verdicts
    scores: dict[str, Scored]
    stored: Case
    preemption: Choice | None = None


class OracleError(Exception):
    """The oracle cannot judge the case; the message says why."""


class Oracle:
    """A running oracle, which takes thousands of cases one after the other."""

    def __init__(
        self, environ: Mapping[str, str] = os.environ, *, preemption: bool = False
    ) -> None:
        """Choose the environment in which to look for Go and the cache of what it built, and
        whether to ask DefaultPreemption, too."""
        self._environ = environ
        self._options = ["--preemption"] if preemption else []
        self._cleanup = ExitStack()

    def __enter__(self) -> Self:
        """Start the oracle's process; raises ControlPlaneError where there is no Go for it."""
        self._errors = self._cleanup.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
        self._process = subprocess.Popen(
            [program(self._environ), "oracle", *self._options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._cleanup.callback(stop, self._process)
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self._cleanup.close()

    def verdicts(self, case: Mapping[str, Any]) -> Verdicts:
        """Return the verdicts of `judge` alone."""
        return self.judge(case).verdicts

    def judge(self, case: Mapping[str, Any]) -> Judged:
        """Return the verdict of every plugin on every node, and the objects that it was about.

        Every node has the same plugins: those of kube-scheduler's default profile that can refuse
        a node, SchedulingGates among them, but not DynamicResources. Raises OracleError for a case
        that an API server would not take, and for a pod with resource claims.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(case).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise OracleError(f"the oracle died: {self._last_words()}")
        answer = json.loads(line)
        if error := answer.get("error"):
            raise OracleError(error)
        scores = {
            plugin: Scored(each["weight"], each.get("raw", {}), each.get("normalized", {}))
            for plugin, each in answer.get("scores", {}).items()
        }
        choice = None
        if (said := answer.get("preemption")) is not None:
            choice = Choice(
                set(said.get("fits", ())),
                said.get("refused", ""),
                {
                    node: (tuple(each["pods"]), each["violations"])
                    for node, each in said.get("candidates", {}).items()
                },
                said.get("chosen", ""),
            )
        return Judged(answer.get("nodes", {}), scores, answer["stored"], choice)

    def _last_words(self) -> str:
        self._errors.seek(0)
        return " | ".join(self._errors.read().splitlines()[:LOG_LINES])


def refusals(verdicts: Verdicts) -> dict[str, set[str]]:
    """Return for each node the plugins that reject it."""
    return {
        node: {plugin for plugin, reason in plugins.items() if reason is not None}
        for node, plugins in verdicts.items()
    }
