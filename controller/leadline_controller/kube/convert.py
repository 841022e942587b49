"""API objects -> the framework's Node, Pod and Resource, whatever the objects are like.

kubeobjects/ reads them. What cannot be read must neither end the watch nor be used: such a node
takes no pods, such a pod says what is wrong in its `problem`, and a pod that needs such a claim
or volume finds it missing.
"""

import logging
from dataclasses import replace
from typing import Any

from leadline_controller.framework.model import PODS, Node, Pod
from leadline_controller.framework.ports import ClusterError, NotFoundError
from leadline_controller.framework.resources import Resource, Unreadable
from leadline_controller.kubeobjects.manifest import read_node, read_pod
from leadline_controller.kubeobjects.resources import READERS
from leadline_controller.parsing.fields import FieldError, valid_text

Json = dict[str, Any]
_MOST_SAID = 1000
_DEMANDS = ("affinity", "topologySpreadConstraints", "volumes")
_log = logging.getLogger(__name__)


class Converter:
    """Converts the objects of one cluster and says once of each what could not be read."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def node(self, manifest: Json) -> Node | None:
        """The node, closed to pods when it can't be read; None when not even its name can."""
        name = _text(manifest, "metadata", "name")
        try:
            node = read_node(manifest)
        except FieldError as error:
            self._say(f"node {name}", f"{error}; it takes no pods until that is mended")
            return Node(name=name, unschedulable=True, ready=False) if name else None
        self._said.pop(f"node {name}", None)
        return node

    def pod(self, manifest: Json) -> Pod | None:
        """The pod, with a `problem` when it can't be read; None when not even its name can."""
        namespace, name = (_text(manifest, "metadata", part) for part in ("namespace", "name"))
        key = f"pod {namespace}/{name}"
        try:
            pod = read_pod(manifest)
        except FieldError as error:
            known = _without_demands(manifest)
            if known is not None:
                return replace(known, problem=str(error))
            pod = _unreadable(manifest, str(error))
            if not pod.name:
                self._say(key, f"{error}; left out")
                return None
            if pod.node_name and not pod.finished:
                self._say(key, f"{error}; what it takes of node {pod.node_name} is not counted")
            return pod
        self._said.pop(key, None)
        return pod

    def resource(self, kind: str, manifest: Json) -> Resource | None:
        """What it is; None when it can't be read. kind: as in READERS."""
        namespace, name = (_text(manifest, "metadata", part) for part in ("namespace", "name"))
        key = f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
        try:
            resource = READERS[kind](manifest, "")
        except FieldError as error:
            self._say(key, f"{error}; left out")
            return None
        self._said.pop(key, None)
        return resource

    def unreadable(self, kind: str, error: ClusterError) -> tuple[Unreadable, ...]:
        """What stands for a kind that may not be read: unknown ones; for one that the server
        doesn't have: none."""
        if isinstance(error, NotFoundError):
            self._say(f"there are no {kind}", f"the API server does not serve them: {error}")
            return ()
        self._say(f"may not read {kind}", f"{error}; pods that depend on them are not placed")
        return (Unreadable(kind, str(error)),)

    def _say(self, what: str, problem: str) -> None:
        if self._said.get(what) != problem:
            if len(self._said) >= _MOST_SAID:
                self._said.clear()  # most of these objects are long gone
            self._said[what] = problem
            _log.warning("%s: %s", what, problem)


def _without_demands(manifest: Json) -> Pod | None:
    """The pod without what may be unreadable of its demands, so that what it takes counts."""
    spec = manifest.get("spec")
    if not isinstance(spec, dict):
        return None
    try:
        return read_pod({**manifest, "spec": {k: v for k, v in spec.items() if k not in _DEMANDS}})
    except FieldError:
        return None


def _unreadable(manifest: Json, problem: str) -> Pod:
    """What can be said of a pod without trusting anything in it to have the right type."""
    return Pod(
        namespace=_text(manifest, "metadata", "namespace"),
        name=_text(manifest, "metadata", "name"),
        uid=_text(manifest, "metadata", "uid"),
        requests={PODS: 1},
        scheduler_name=_text(manifest, "spec", "schedulerName"),
        node_name=_text(manifest, "spec", "nodeName") or None,
        finished=_text(manifest, "status", "phase") in ("Succeeded", "Failed"),
        terminating=bool(_text(manifest, "metadata", "deletionTimestamp")),
        problem=problem,
    )


def _text(manifest: Json, section: str, name: str) -> str:
    inside = manifest.get(section)
    value = inside.get(name) if isinstance(inside, dict) else None
    return valid_text(value) if isinstance(value, str) else ""
