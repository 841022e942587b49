"""Binds a pod to a node."""

from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import Fence
from leadline_controller.kube.client import ApiServer, pod_path


async def bind(server: ApiServer, pod: Pod, node: str, fence: Fence | None = None) -> None:
    """Bind exactly this pod, before the fence closes. Raises ClusterError's kinds.

    The uid keeps a pod that was made again under the same name from being bound by mistake. The
    API server does not look whether the node exists.
    """
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await server.post(f"{pod_path(pod)}/binding", body, fence)
