"""Pods on the k3s of a testbed."""

from __future__ import annotations

import json

from tests.kube.objects import Object
from tests.rollout.machines import Machine

BOUND_S = 30


def place_pod(server: Machine, manifest: Object) -> str:
    """Create a pod, wait until it is bound, and return the name of its node."""
    name = manifest["metadata"]["name"]
    server.run(f"kubectl create -f - <<'END'\n{json.dumps(manifest)}\nEND")
    where = "-o jsonpath='{.spec.nodeName}'"
    return server.wait_for(f"kubectl get pod {name} {where} | grep .", BOUND_S).stdout.strip()
