"""What a strategy without effect would have decided."""

from typing import Any

import msgspec
from leadline_controller.history.shadowed import ShadowDecision

from tests.controller.history.decision_builder import Machine


def shadow(machine: Machine, name: str = "web-1", **changed: Any) -> ShadowDecision:
    """A decision made just now, for another node."""
    made = ShadowDecision(
        strategy="netsched",
        pod=f"default/{name}",
        uid=f"uid-{name}",
        workload="default/web",
        decided_by="dacs",
        node="n1",
        choice="n2",
        better="higher",
        candidates=3,
        total=2.0,
        total_of_node=1.5,
        rank=2,
        tied=False,
        missed=0,
        user="n3",
        pod_cpu_percent=5.0,
        at=machine.now(),
    )
    return msgspec.structs.replace(made, **changed)
