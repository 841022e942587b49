"""Reads a snapshot's namespaces and storage objects: Kubernetes manifests in one list for each
kind."""

from collections.abc import Iterable, Mapping

from leadline_controller.framework.assigned_pods import Namespaces
from leadline_controller.framework.model import Pod
from leadline_controller.framework.resources import NamespaceLabels, Resource
from leadline_controller.kubeobjects.resources import READERS
from leadline_controller.parsing.fields import FieldError, Fields

# Field of the snapshot -> kind of the manifests in its list.
KINDS: Mapping[str, str] = {
    "namespaces": "Namespace",
    "claims": "PersistentVolumeClaim",
    "volumes": "PersistentVolume",
    "storage_classes": "StorageClass",
    "csi_nodes": "CSINode",
    "csi_drivers": "CSIDriver",
    "storage_capacities": "CSIStorageCapacity",
    "volume_attachments": "VolumeAttachment",
}


def read_resources(root: Fields) -> list[Resource]:
    """All resources of a snapshot. Raises FieldError, also for a repeated name."""
    found: list[Resource] = []
    for name, kind in KINDS.items():
        seen: dict[str, str] = {}
        for entry in root.objects(name):
            if entry.has("kind") and entry.raw("kind") != kind:
                raise entry.error("kind", kind)
            resource = READERS[kind](dict(entry.items()), entry.path)
            if resource.key in seen:
                raise FieldError(f"{entry.path}: {resource.key} is taken by {seen[resource.key]}")
            seen[resource.key] = entry.path
            found.append(resource)
    return found


def known_namespaces(resources: Iterable[Resource], pods: Iterable[Pod]) -> Namespaces:
    """The namespaces of the file, and those of its pods with the label that Kubernetes sets."""
    labels: dict[str, Mapping[str, str]] = {
        pod.namespace: {"kubernetes.io/metadata.name": pod.namespace} for pod in pods
    }
    labels.update({r.name: r.labels for r in resources if isinstance(r, NamespaceLabels)})
    return Namespaces(labels)
