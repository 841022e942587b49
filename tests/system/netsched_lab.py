"""NetSched's trial (Fig. 7 and 8 of its paper) with real parts: four boards on shaped links, a
real agent on each, mosquitto, iperf3, a real API server, and the controller, which binds the
pods. The stock kube-scheduler then places the same pods.

There is no kubelet, so pods do not run. `python -m tests.system.netsched_lab n3` runs the trial
with n3 as the free board, and without a name the control, in which all links are equal. It prints
the measurements and counts, and needs root.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from leadline_lab import lab as labs
from leadline_lab.lab import AgentSettings, Lab, start_agents
from leadline_lab.spec import SERVER, BoardSpec, LabSpec

from tests.kube.api import Api
from tests.kube.control_plane import control_plane
from tests.kube.objects import Object, node, pod
from tests.kube.scheduler import kube_scheduler
from tests.support.mosquitto import mosquitto
from tests.support.ports import free_port
from tests.system.daemons import Daemon, eventually, leadline

NAMES = ("n1", "n2", "n3", "n4")
FREE_MBPS, THROTTLED_MBPS = 100.0, 4.0
_SPEC = LabSpec(boards=tuple(BoardSpec(name) for name in NAMES))
COUNTS = (90, 5, 10)
SCHEDULERS = {"netsched": "leadline", "kube-scheduler": "default-scheduler"}
_MODULE = "tests.system.netsched_lab"
_CLUSTER, _PORT = "lab", 1883
_PODS, _NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
_MASTER_TAINT = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
_MEASURED = ("bandwidth_mbps", "packets_sent_per_s", "packets_received_per_s")
_JUST_TESTED_S = 8.0
_ALIKE = 0.8  # a quarter less counts as equal among four boards; see NodeMetrics.margins_of
_MEASURED_S = 600.0  # on a busy machine
_LONGEST_S = 1500.0


def rates_mbps(free: str | None) -> Mapping[str, float]:
    """Of each board's link; None: all are free."""
    return {name: FREE_MBPS if free in (None, name) else THROTTLED_MBPS for name in NAMES}


@dataclass(frozen=True)
class Played:
    """The results."""

    # Board -> metric -> value, just before the 90 pods were created.
    measured: Mapping[str, Mapping[str, float]]
    # Scheduler -> number of pods -> pods on each board, in the order of NAMES.
    counts: Mapping[str, Mapping[str, Sequence[int]]]

    def table(self) -> str:
        """The results as text."""
        lines = ["board  " + "  ".join(f"{name:>22}" for name in _MEASURED)]
        for board, values in self.measured.items():
            lines.append(f"{board:5}  " + "  ".join(f"{values[name]:22.2f}" for name in _MEASURED))
        for scheduler, placed in self.counts.items():
            for pods, counts in placed.items():
                lines.append(f"{pods:>3} pods by {scheduler:14}: {'/'.join(map(str, counts))}")
        return "\n".join(lines)


def play(name: str, free: str | None) -> Played:
    """Build a lab of this name, run the trial on its server, and remove the lab. free: the board
    whose link is not throttled; None for the control, in which no link is."""
    rates = rates_mbps(free)
    boards = tuple(BoardSpec(each, rate_mbps=rates[each]) for each in NAMES)
    lab = labs.up(LabSpec(name, boards=boards))
    try:
        start_agents(lab, AgentSettings(_CLUSTER, lab.address(), _PORT, interval_s=1))
        for board in NAMES if free else ():
            if board == free:
                continue
            # The paper's throttled workers have much network traffic.
            argv = ["ping", "-q", "-i", "0.02", lab.address()]
            lab.start(board, f"traffic-{board}", argv)
        return _played_on_the_server(lab, free)
    finally:
        labs.down(name)


def _played_on_the_server(lab: Lab, free: str | None) -> Played:
    """Run the trial in the server's namespace, because the API server listens on its loopback."""
    act = [lab.address(), *([free] if free else [])]
    argv = lab.command(SERVER, [sys.executable, "-m", _MODULE, "act", *act])
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_LONGEST_S)
    assert done.returncode == 0, done.stderr
    return Played(**json.loads(done.stdout))


def _act(address: str, free: str | None = None) -> Played:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="leadline-trial-")))
        stack.enter_context(mosquitto(host=address, port=_PORT))
        plane = stack.enter_context(control_plane(folder))
        api = Api(plane.kubeconfig)
        for board in NAMES:
            api.add_node(node(board, cpu="4", memory="971M", address=_SPEC.address(board)))
        taints = [_MASTER_TAINT]
        api.add_node(node(SERVER, cpu="8", memory="16G", taints=taints, address=address))
        grpc = f"127.0.0.1:{free_port()}"
        config = folder / "controller.toml"
        config.write_text(_controller_toml(address, plane.kubeconfig, grpc))
        controller = Daemon("leadline_controller", config, folder / "controller.log")
        stack.callback(controller.stop)
        controller.start()
        measured: dict[str, dict[str, float]] = {}
        netsched: dict[str, list[int]] = {}
        for count in COUNTS:
            now = _quiet(grpc, free)
            measured = measured or now
            netsched[str(count)] = _placed(api, SCHEDULERS["netsched"], count)
        stack.enter_context(kube_scheduler(plane))
        stock = {str(n): _placed(api, SCHEDULERS["kube-scheduler"], n) for n in COUNTS}
        return Played(measured, {"netsched": netsched, "kube-scheduler": stock})


def _controller_toml(address: str, kubeconfig: Path, grpc: str) -> str:
    # Boards of a lab share one machine, so CPU, memory and disk are the same on all of them.
    return (
        f'cluster = "{_CLUSTER}"\n'
        f'[broker]\nhost = "{address}"\nport = {_PORT}\nplaintext = true\n'
        f'[kubernetes]\nkubeconfig = "{kubeconfig}"\n'
        '[strategy]\nname = "netsched"\noptions = {cpu = 0, memory = 0, disk = 0}\n'
        f'[grpc]\naddress = "{grpc}"\n'
        f'[probe]\nanchors = ["{SERVER}"]\ninterval_s = 5\nduration_ms = 1500\n'
        "link_time_share = 0.1\nbytes_per_day = 1000000000000\n"
    )


def _quiet(grpc: str, free: str | None) -> dict[str, dict[str, float]]:
    """Wait until every board is measured and the free one was tested a moment ago; return the
    measurements. The packets of its next test, a round later, would count as its traffic.

    On a busy machine, tests may show less than a link can do, so a value counts from half of the
    link's rate on, and equal links are waited for until they are known as about equal.
    """

    def known() -> dict[str, dict[str, Any]]:
        answer = leadline("nodes", "-o", "json", "--address", grpc)
        nodes = json.loads(answer.stdout)["nodes"] if answer.returncode == 0 else []
        return {node["name"]: node["metrics"] for node in nodes if node["name"] in NAMES}

    def right(metrics: dict[str, dict[str, Any]]) -> bool:
        whole = len(metrics) == len(NAMES) and all(
            set(_MEASURED) <= set(values) for values in metrics.values()
        )
        if not whole or (free and metrics[free]["bandwidth_mbps"]["age_s"] > _JUST_TESTED_S):
            return False
        bandwidths = {board: metrics[board]["bandwidth_mbps"] for board in NAMES}
        if any(
            each.get("suspect") or each["value"] <= rates[board] / 2
            for board, each in bandwidths.items()
        ):
            return False
        if free is None:
            mbps = [each["value"] for each in bandwidths.values()]
            return bool(min(mbps) >= _ALIKE * max(mbps))
        return all(
            metrics[free][name]["value"] < metrics[board][name]["value"]
            for name in ("packets_sent_per_s", "packets_received_per_s")
            for board in NAMES
            if board != free
        )

    rates = rates_mbps(free)
    found = eventually(known, right, "the boards are measured", timeout_s=_MEASURED_S, every_s=0.5)
    return {name: {m: found[name][m]["value"] for m in _MEASURED} for name in NAMES}


def _placed(api: Api, scheduler: str, count: int) -> list[int]:
    """Create `count` pods, wait until they are bound, count them by board, and delete them."""
    for number in range(count):
        api.create(_PODS, _pod(f"{scheduler}-{number}", scheduler))
    bound = eventually(
        lambda: [each["spec"].get("nodeName") for each in api.get(_PODS)["items"]],
        lambda nodes: len(nodes) == count and all(nodes),
        f"{count} pods are bound by {scheduler}",
    )
    for number in range(count):
        api.delete(f"{_PODS}/{scheduler}-{number}")
    counts = Counter(bound)
    assert set(counts) <= set(NAMES), counts
    return [counts[name] for name in NAMES]


def _pod(name: str, scheduler: str) -> Object:
    return pod(name, cpu="1m", memory="10M", scheduler=scheduler)


def main() -> None:
    """Run the whole trial; after "act", only the part on the server."""
    if sys.argv[1:2] == ["act"]:
        print(json.dumps(asdict(_act(*sys.argv[2:]))))
    else:
        print(play("netsched", next(iter(sys.argv[1:]), None)).table())


if __name__ == "__main__":
    main()
