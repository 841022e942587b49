"""API objects -> the framework's Node, Pod and ClusterObject, also where an object can't be read.

kubeobjects/ reads them. An object that can't be read must neither end the watch nor be used: such
a node takes no pods, such a pod has a `problem`, and such a claim or volume is missing.
"""

import logging
from dataclasses import replace
from typing import Any

from leadline_controller.framework.cluster_objects import SELECTING, ClusterObject, Unreadable
from leadline_controller.framework.model import PODS, Node, Pod
from leadline_controller.framework.ports import ClusterError, NotFoundError
from leadline_controller.kubeobjects.cluster_objects import READERS
from leadline_controller.kubeobjects.manifest import read_node, read_pod
from leadline_controller.parsing.fields import FieldError
from leadline_controller.parsing.typed import plain

Json = dict[str, Any]
_MAX_WARNINGS = 1000
_CONSTRAINT_FIELDS = ("affinity", "topologySpreadConstraints", "volumes")
_log = logging.getLogger(__name__)


class Converter:
    """Converts the objects of one cluster, as JSON, and logs once for each what can't be read."""

    def __init__(self) -> None:
        self._warned: dict[str, str] = {}

    def node(self, manifest: object) -> Node | None:
        """The node, unschedulable when it can't be read; None when its name can't be read."""
        try:
            node = read_node(manifest)
        except FieldError as error:
            name = _text(_plain(manifest), "metadata", "name")
            self._warn_once(f"node {name}", f"{error}; it takes no pods until this is fixed")
            return Node(name=name, unschedulable=True, ready=False) if name else None
        self._warned.pop(f"node {node.name}", None)
        return node

    def pod(self, manifest: object) -> Pod | None:
        """The pod, with a `problem` when it can't be read; None when its name can't be read."""
        try:
            pod = read_pod(manifest)
        except FieldError as error:
            data = _plain(manifest)
            known = _read_without_constraints(data)
            if known is not None:
                return replace(known, problem=str(error))
            pod = _read_identity(data, str(error))
            if not pod.name:
                self._warn_once(f"pod {pod.key}", f"{error}; ignored")
                return None
            if pod.node_name and not pod.finished:
                without = f"its requests on node {pod.node_name} are not counted"
                self._warn_once(f"pod {pod.key}", f"{error}; {without}")
            return pod
        self._warned.pop(f"pod {pod.key}", None)
        return pod

    def cluster_object(self, kind: str, manifest: object) -> ClusterObject | None:
        """The object of a kind in READERS; None when it can't be read."""
        try:
            found = READERS[kind](manifest, "")
        except FieldError as error:
            self._warn_once(_named(kind, manifest), f"{error}; ignored")
            return None
        if self._warned:
            self._warned.pop(_named(kind, manifest), None)
        return found

    def unreadable(self, kind: str, error: ClusterError) -> tuple[Unreadable, ...]:
        """The placeholders of a kind that can't be listed: none when the server does not have it,
        else one that makes pods wait which depend on the kind."""
        if isinstance(error, NotFoundError):
            self._warn_once(f"there are no {kind}", f"the API server does not serve them: {error}")
            return ()
        without = "pods that depend on them are not scheduled or moved"
        if kind in SELECTING:
            without = "pods without constraints of their own are not spread by their selectors"
        self._warn_once(f"can't read {kind}", f"{error}; {without}")
        return (Unreadable(kind, str(error)),)

    def _warn_once(self, what: str, problem: str) -> None:
        if self._warned.get(what) != problem:
            if len(self._warned) >= _MAX_WARNINGS:
                self._warned.clear()  # most of these objects are gone
            self._warned[what] = problem
            _log.warning("%s: %s", what, problem)


def _plain(manifest: object) -> Json:
    """The object as dictionaries and lists; empty if it is none."""
    try:
        data = plain(manifest, "")
    except FieldError:
        return {}
    return data if isinstance(data, dict) else {}


def _read_without_constraints(manifest: Json) -> Pod | None:
    """The pod without the fields that may be unreadable, so that its requests are counted."""
    spec = manifest.get("spec")
    if not isinstance(spec, dict):
        return None
    try:
        return read_pod(
            {**manifest, "spec": {k: v for k, v in spec.items() if k not in _CONSTRAINT_FIELDS}}
        )
    except FieldError:
        return None


def _read_identity(manifest: Json, problem: str) -> Pod:
    """The pod's identity and state, from a manifest in which any field may have a wrong type."""
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


def _named(kind: str, manifest: object) -> str:
    data = _plain(manifest)
    parts = (_text(data, "metadata", part) for part in ("namespace", "name"))
    return f"{kind} {'/'.join(filter(None, parts))}"


def _text(manifest: Json, section: str, name: str) -> str:
    inside = manifest.get(section)
    value = inside.get(name) if isinstance(inside, dict) else None
    return value if isinstance(value, str) else ""
