"""A link is throttled, and pods move away from its board by themselves: real agents, kubelets and
containers, the stock Deployment controller, and DACS.

`python -m tests.system.moves_lab` plays it and prints what happened when; it needs root. Four
boards have links of 50 Mbit/s; then the link of the board with the most pods is throttled to 4.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from leadline_lab import network
from leadline_lab.lab import Lab
from leadline_lab.spec import SERVER, SWITCH, BoardSpec

from tests.kube.api import ApiError
from tests.kube.objects import Object, deployment, node
from tests.lab.lab_images import push_image
from tests.lab.running import PODS, RunningLab, Size, is_ready, running_lab
from tests.system.daemons import eventually

NAMES = ("n1", "n2", "n3", "n4")
MBPS, THROTTLED_MBPS = 50.0, 4.0
REPLICAS, DATA_MB = 4, 100
CONTROLLERS = ("deployment-controller", "replicaset-controller", "disruption-controller")
DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments"
WORSE_FOR_S = 15
_MASTER_TAINT = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
_SETTINGS = f"""
[strategy]
name = "dacs"
preferences = "off"  # so that several pods are on one board
[probe]
anchors = ["{SERVER}"]
interval_s = 5
duration_ms = 1500
link_time_share = 0.1
bytes_per_day = 1000000000000
[rescheduling]
mode = "automatic"
worse_for_s = {WORSE_FOR_S}
cooldown_s = 0
moves_per_hour = 20
node_moves_per_hour = 20
workload_moves_per_hour = 20
"""


@dataclass
class Played:
    """What happened, with seconds since the throttling."""

    throttled: str = ""
    measured_s: float | None = None
    # How many are ready on each board, as it changes.
    pods: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    fewest: int = REPLICAS  # how few were ready at any time
    whys: list[str] = field(default_factory=list)  # of the last decisions

    def lines(self) -> Iterator[str]:
        """The report."""
        yield f"0.0 s: {self.throttled} throttled from {MBPS:g} to {THROTTLED_MBPS:g} Mbit/s"
        if self.measured_s is not None:
            yield f"{self.measured_s:.1f} s: its bandwidth is measured as below 10 Mbit/s"
        for at_s, where in self.pods:
            shown = ", ".join(f"{name} {where.get(name, 0)}" for name in NAMES)
            yield f"{at_s:.1f} s: ready pods on {shown}"
        yield from (why for why in self.whys if why.startswith("moved"))
        yield f"at least {self.fewest} of {REPLICAS} pods were ready at any time"


def play(name: str = "", timeout_s: float = 240.0) -> Played:
    """Build the lab, throttle a link, watch the pods until they have left, and remove the lab."""
    played = Played()
    boards = [BoardSpec(each, rate_mbps=MBPS) for each in NAMES]
    sizes = {each: Size(cpu=1, memory_mb=971) for each in NAMES}
    with running_lab(boards, CONTROLLERS, sizes, name) as running:
        running.api.add_node(node(SERVER, taints=[_MASTER_TAINT], address=running.lab.address()))
        image = push_image(running.lab, "web")
        running.start_controller(_SETTINGS)
        eventually(lambda: _known(running), lambda mbps: len(mbps) == 4, "all are measured", 120)
        running.api.create(DEPLOYMENT, _deployment(image))
        eventually(lambda: sum(_ready(running).values()), lambda n: n == REPLICAS, "they run", 90)
        played.throttled = _ready(running).most_common(1)[0][0]
        _throttle(running.lab, played.throttled)
        begin = time.monotonic()
        while (at_s := time.monotonic() - begin) < timeout_s:
            where = _ready(running)
            if not played.pods or played.pods[-1][1] != dict(where):
                played.pods.append((at_s, dict(where)))
            played.fewest = min(played.fewest, sum(where.values()))
            if played.measured_s is None and _known(running).get(played.throttled, MBPS) < 10:
                played.measured_s = time.monotonic() - begin
            if not where[played.throttled] and sum(where.values()) == REPLICAS:
                break
            time.sleep(0.2)
        played.whys = [each["why"] for each in running.ask("placements")["placements"]]
    return played


def _deployment(image: str) -> Object:
    annotations = {
        "leadline.dev/user-node": SERVER,
        "leadline.dev/data-mb": str(DATA_MB),
        "leadline.dev/profile-ms": json.dumps(dict.fromkeys(NAMES, 5000)),
    }
    container: dict[str, Any] = {"name": "main", "image": image}
    container["resources"] = {"requests": {"cpu": "100m"}}
    spec = {
        "schedulerName": "leadline",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
    }
    return deployment("web", spec, REPLICAS, annotations=annotations)


def _ready(running: RunningLab) -> Counter[str]:
    """Board -> how many pods are ready there."""
    found: Counter[str] = Counter()
    with suppress(ApiError):
        for pod in running.api.get(PODS)["items"]:
            if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]:
                found[pod["spec"]["nodeName"]] += 1
    return found


def _known(running: RunningLab) -> dict[str, float]:
    """Board -> the bandwidth that the controller knows, Mbit/s."""
    with suppress(AssertionError):  # the controller has just started
        return {
            each["name"]: each["metrics"]["bandwidth_mbps"]["value"]
            for each in running.ask("nodes")["nodes"]
            if each["name"] in NAMES and "bandwidth_mbps" in each["metrics"]
        }
    return {}


def _throttle(lab: Lab, board: str) -> None:
    """Replace the shaping of a board's link, both ways."""
    number = NAMES.index(board)
    for namespace, device in (
        (lab.spec.namespace(board), network.HOST_END),
        (lab.spec.namespace(SWITCH), f"p{number}"),
    ):
        shape = ["tbf", "rate", f"{THROTTLED_MBPS:g}mbit", "burst", "4kb", "latency", "50ms"]
        network.run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", *shape)


def main() -> None:
    """Play it and print the report."""
    for line in play().lines():
        print(line)


if __name__ == "__main__":
    main()
