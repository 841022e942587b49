"""NetSched's Fig. 9 and 10 with real transfers: pods that send data from boards of which three
have a throttled link, placed by NetSched and by the stock kube-scheduler.

As in the paper, a trial takes from the creation of its pods until the last has sent all its data.
`python -m tests.system.netsched_transfers [MB]` runs it and prints the table; it needs root. Each
pod sends the paper's 100 MB divided by five, or MB.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from leadline_lab.spec import SERVER, BoardSpec

from tests.kube.kwok import side_by_side
from tests.kube.objects import node
from tests.kube.scheduler import kube_scheduler
from tests.lab.lab_images import push_image
from tests.lab.running import PODS, RunningLab, Size, running_lab, running_pod
from tests.support.ports import wait_until
from tests.system.daemons import eventually

FREE, THROTTLED = "n1", ("n2", "n3", "n4")
BOARDS = (BoardSpec(FREE, rate_mbps=100), *(BoardSpec(name, rate_mbps=4) for name in THROTTLED))
NAMES = (FREE, *THROTTLED)
SCHEDULERS = {"netsched": "leadline", "kube-scheduler": "default-scheduler"}
COUNTS = (5, 10)
_SINK_PORT = 9000
_MEASURED = ("bandwidth_mbps", "packets_sent_per_s", "packets_received_per_s")
_MASTER_TAINT = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}


@dataclass(frozen=True)
class Trial:
    """One bar of a figure: duration, when half of the pods were done, and pods on each board."""

    scheduler: str
    pods: int
    seconds: float
    median_s: float
    boards: Mapping[str, int]


def play(mb: float, name: str = "") -> list[Trial]:
    """Build the lab, run every trial, and remove the lab."""
    sizes = {board: Size(cpu=1, memory_mb=971) for board in NAMES}
    with running_lab(BOARDS, sizes=sizes, name=name) as running:
        running.api.add_node(node(SERVER, taints=[_MASTER_TAINT], address=running.lab.address()))
        sink = ["socat", "-u", f"TCP-LISTEN:{_SINK_PORT},fork,reuseaddr", "OPEN:/dev/null"]
        running.lab.start(SERVER, "sink", sink)
        image = _image_on_all_boards(running, mb)
        for board in THROTTLED:
            # The paper's throttled workers have much network traffic.
            ping = ["ping", "-q", "-i", "0.02", running.lab.address()]
            running.lab.start(board, f"traffic-{board}", ping)
        running.start_controller(
            '[strategy]\nname = "netsched"\noptions = {cpu = 0, memory = 0, disk = 0}\n'
            f'[probe]\nanchors = ["{SERVER}"]\ninterval_s = 5\nduration_ms = 1500\n'
            "link_time_share = 0.1\nbytes_per_day = 1000000000000\n"
        )
        trials = []
        with kube_scheduler(running.plane):
            for count in COUNTS:
                for scheduler in SCHEDULERS:
                    if scheduler == "netsched":
                        _wait_measured(running)
                    trials.append(_trial(running, scheduler, count, image, mb))
                    print(_line(trials[-1]), flush=True)
        return trials


def _image_on_all_boards(running: RunningLab, mb: float) -> str:
    """Push the image of the sender, and let each board pull it, as the paper's had theirs."""
    address = running.lab.address()
    send = f"head -c {round(mb * 1e6)} /dev/zero | /bin/busybox nc {address} {_SINK_PORT}"
    command = ("/bin/busybox", "sh", "-c", f"/bin/busybox {send}")
    image = push_image(running.lab, "sender", command=command)
    for board in NAMES:
        warm = running_pod(f"warm-{board}", image, nodeName=board)
        warm["spec"]["containers"][0]["command"] = ["/bin/busybox", "sleep", "600"]
        running.wait_running(running.create(warm))
        running.api.delete(f"{PODS}/warm-{board}")
    return image


def _wait_measured(running: RunningLab) -> None:
    """Wait until all boards are measured, and the free one is quiet and known to be fast."""

    def known() -> dict[str, dict[str, dict[str, float]]]:
        nodes = running.ask("nodes")["nodes"]
        return {each["name"]: each["metrics"] for each in nodes if each["name"] in NAMES}

    def right(metrics: dict[str, dict[str, dict[str, float]]]) -> bool:
        if len(metrics) < len(NAMES) or any(
            name not in values for values in metrics.values() for name in _MEASURED
        ):
            return False
        free = metrics[FREE]
        return all(
            free["bandwidth_mbps"]["value"] > metrics[board]["bandwidth_mbps"]["value"]
            and free[name]["value"] < metrics[board][name]["value"]
            for name in ("packets_sent_per_s", "packets_received_per_s")
            for board in THROTTLED
        )

    eventually(known, right, "the boards are measured", timeout_s=600, every_s=0.5)


def _trial(running: RunningLab, scheduler: str, count: int, image: str, mb: float) -> Trial:
    api, prefix = running.api, f"{scheduler}-{count}-"
    names = [f"{prefix}{number}" for number in range(count)]
    done_s: dict[str, float] = {}
    boards: dict[str, str] = {}
    begin = time.monotonic()
    resources = {"cpu": "1m", "memory": "10M", "scheduler": SCHEDULERS[scheduler]}
    pods = [running_pod(name, image, restartPolicy="Never", **resources) for name in names]
    # At once, as a Deployment's: traffic of the first pods would count against their board.
    side_by_side(running.create, pods)

    def all_done() -> bool:
        for each in api.get(PODS)["items"]:
            name, phase = each["metadata"]["name"], each["status"]["phase"]
            assert phase != "Failed", each["status"]
            if name in names and phase == "Succeeded" and name not in done_s:
                done_s[name] = time.monotonic() - begin
                boards[name] = each["spec"]["nodeName"]
        time.sleep(0.1)
        return len(done_s) == count

    # All of them behind one throttled link would take this long.
    wait_until(all_done, "all pods have sent", 60 + 1.5 * count * mb * 8 / 4)
    for name in names:
        api.delete(f"{PODS}/{name}")
    found = Counter(boards.values())
    median_s = statistics.median(done_s.values())
    return Trial(scheduler, count, max(done_s.values()), median_s, {b: found[b] for b in NAMES})


def _line(trial: Trial) -> str:
    boards = "/".join(str(count) for count in trial.boards.values())
    times = f"{trial.seconds:8.1f}  {trial.median_s:8.1f}"
    return f"{trial.pods:>4}  {trial.scheduler:14}  {times}  {boards}"


def main() -> None:
    """Print one line for each trial as it ends."""
    mb = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    print(f"each pod sends {mb:g} MB; boards at 100/4/4/4 Mbit/s")
    print("pods  scheduler       last, s   median, s  on each board", flush=True)
    play(mb)


if __name__ == "__main__":
    main()
