"""The judge is judged: several strategies place the same pods for real, each run is recorded, and
from each recording a replay predicts what the others did.

Four boards on shaped links pull images that share layers, and each pod sends data to its user's
node when it starts. `make judge` runs it; it needs root. FOLDER gets a recording of each run and
what really happened, `runs.json`; tests/lab/replay/judged.py compares. The stock kube-scheduler
and other links are played if asked for, such as by
`python -m tests.system.judge_lab .alike --mbps 100 100 100 100 --strategy kube-scheduler`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from threading import Event

from leadline_controller.history.recording_files import read_recording, write_recording
from leadline_lab.kubelets import registry_address
from leadline_lab.processes import stop
from leadline_lab.replay.comparison import WORST_SHARE
from leadline_lab.spec import SERVER, BoardSpec

from tests.kube.objects import Object, node
from tests.kube.scheduler import kube_scheduler
from tests.lab.running import PODS, RunningLab, is_ready, running_lab, running_pod
from tests.support.threads import beside
from tests.system.daemons import eventually
from tests.system.layers_lab import push_images, random_sequence, tell_images, warm_up

# A slower one would decide all means alone, by the images that chance sends there.
MBPS = (100.0, 70.0, 50.0, 35.0)
STRATEGIES = ("infrastructure-aware", "netsched", "dacs", "kube-default", "kcss")
STOCK = "kube-scheduler"
TIMES = 3
PODS_A_RUN, GAP_S, DATA_MB = 32, 1.2, 3
# Eleven pods fill a board, so that three boards could have them all.
CPU = f"{1000 * (os.cpu_count() or 1) // 11}m"
_PREFIX, _SINK_PORT, _WAIT_S = "pod-", 9000, 300.0
_TAINT = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
_REAL = re.compile(r"^real\s+(\d+)m ([0-9.]+)s$", re.MULTILINE)


@dataclass(frozen=True)
class RealRun:
    """What really happened. Of each pod, by name: its board, s from its creation until it was
    ready, and s that its data took."""

    strategy: str
    number: int
    nodes: Mapping[str, str]
    ready_s: Mapping[str, float]
    transfer_s: Mapping[str, float]


def play(strategy: str, number: int, recording: Path, mbps: Sequence[float] = MBPS) -> RealRun:
    """Build a lab, let the strategy place the pods, write the recording, and remove the lab.

    strategy: its name, and options behind it, such as `leadline rate=1000`. mbps: the links of the
    boards. The strategy STOCK is kube-scheduler, without a controller, so
    that nothing is measured or recorded.
    """
    boards = [BoardSpec(f"n{at}", rate_mbps=each) for at, each in enumerate(mbps, 1)]
    with ExitStack() as stack:
        running = stack.enter_context(running_lab(boards))
        user = node(SERVER, taints=[_TAINT], address=running.lab.address())
        running.api.add_node(user)
        sink = ["socat", "-u", f"TCP-LISTEN:{_SINK_PORT},fork,reuseaddr", "OPEN:/dev/null"]
        running.lab.start(SERVER, "sink", sink)
        if strategy == STOCK:
            stack.enter_context(kube_scheduler(running.plane))
            names = push_images(running, set(random_sequence(PODS_A_RUN)), _sender(running))
            warm_up(running)
            return _placed(running, strategy, number, names)
        folder = running.lab.directory / "recordings"
        registry = registry_address(running.lab)
        registries = running.lab.directory / "registries.yaml"
        mirrors = {"mirrors": {registry: {"endpoint": [f"http://{registry}"]}}}
        registries.write_text(json.dumps(mirrors))
        name, *options = strategy.split()
        controller = running.start_controller(
            f'[strategy]\nname = "{name}"\nseed = {number}\noptions = {{{", ".join(options)}}}\n'
            f'[probe]\nanchors = ["{SERVER}"]\ninterval_s = 5\nduration_ms = 1000\n'
            "link_time_share = 0.05\nbytes_per_day = 1000000000000\n"
            f'[images]\nregistries_file = "{registries}"\nrequests_per_hour = 100\n'
            f'[recording]\nenabled = true\nfolder = "{folder}"\n'
        )
        names = push_images(running, set(random_sequence(PODS_A_RUN)), _sender(running))
        warm_up(running)
        _wait_measured(running)
        tell_images(running, names, lambda: dict(running.ask("images")))
        real = _placed(running, strategy, number, names)
        stop([controller], ())
        write_recording(recording, read_recording(folder))
        return real


def _sender(running: RunningLab) -> Sequence[str]:
    """A container's command: send the data, tell how long it took, and stay."""
    address, size = running.lab.address(), round(DATA_MB * 1e6)
    box = "/bin/busybox"
    send = f"{box} head -c {size} /dev/zero | {box} nc {address} {_SINK_PORT}"
    stay = f"trap 'exit 0' TERM; {box} sleep 2147483647 & wait"
    return (box, "sh", "-c", f"time {box} sh -c '{send}'; {stay}")


def _wait_measured(running: RunningLab) -> None:
    def measured() -> set[str]:
        nodes = running.ask("nodes")["nodes"]
        return {each["name"] for each in nodes if "bandwidth_mbps" in each["metrics"]}

    wanted = {board.name for board in running.lab.spec.boards}
    eventually(measured, lambda found: found >= wanted, "the boards are measured", 300, 1.0)


def _placed(running: RunningLab, strategy: str, number: int, names: Mapping[str, str]) -> RealRun:
    left = [
        (f"{_PREFIX}{at}-{image}", image) for at, image in enumerate(random_sequence(PODS_A_RUN))
    ]
    seen = _Seen(running)
    annotations = {"leadline.dev/user-node": SERVER, "leadline.dev/data-mb": str(DATA_MB)}
    scheduler = "default-scheduler" if strategy == STOCK else "leadline"
    count, next_s = len(left), time.monotonic()
    with beside(seen.watch, done=seen.done):
        for name, image in left:
            time.sleep(max(next_s - time.monotonic(), 0.0))
            next_s += GAP_S
            requests = {"cpu": CPU, "memory": "8M", "labels": {"app": image}}
            made = running_pod(
                name, names[image], scheduler=scheduler, annotations=annotations, **requests
            )
            running.create(made)
        eventually(
            lambda: len(seen.ready_s), lambda n: n == count, "all pods are ready", _WAIT_S, 0.5
        )
    found = {name: running.api.get(f"{PODS}/{name}") for name, _ in left}

    def sent() -> dict[str, float]:
        logs = {name: _REAL.search(running.log(pod)) for name, pod in found.items()}
        return {name: 60 * int(m[1]) + float(m[2]) for name, m in logs.items() if m}

    transfers = eventually(sent, lambda seen: len(seen) == count, "all have sent", 180, 1.0)
    nodes = {name: pod["spec"]["nodeName"] for name, pod in found.items()}
    ready_s = {name: seen.ready_s[name] - seen.created_s[name] for name, _ in left}
    return RealRun(strategy, number, nodes, ready_s, transfers)


class _Seen:
    """When the API server showed each pod of a run, and when it showed it ready."""

    def __init__(self, running: RunningLab) -> None:
        self._running, self._version = running, _version(running)
        self.created_s: dict[str, float] = {}
        self.ready_s: dict[str, float] = {}
        self.done = Event()

    def watch(self) -> None:
        while not self.done.is_set():
            with suppress(OSError):  # a quiet watch ends; what was missed comes again
                for change in self._running.api.watch(PODS, self._version):
                    self._see(change["object"])
                    if self.done.is_set():
                        break

    def _see(self, pod: Object) -> None:
        name, now_s = pod["metadata"]["name"], time.monotonic()
        self._version = pod["metadata"]["resourceVersion"]
        if not name.startswith(_PREFIX):
            return
        self.created_s.setdefault(name, now_s)
        if is_ready(pod):
            self.ready_s.setdefault(name, now_s)


def _version(running: RunningLab) -> str:
    return str(running.api.get(PODS)["metadata"]["resourceVersion"])


def table(runs: Sequence[RealRun]) -> Iterator[str]:
    """Of each strategy the means over the pods of all its runs and of their worst 5 %, as rows of
    Markdown, and between which means its runs were."""
    yield "| scheduler | runs | ready, s | worst 5 % | runs' means | transfer, s | worst 5 % |"
    yield "| --- | ---: | ---: | ---: | --- | ---: | ---: |"
    for strategy in dict.fromkeys(run.strategy for run in runs):
        mine = [run for run in runs if run.strategy == strategy]
        means = [mean(run.ready_s.values()) for run in mine]
        ready, sent = (
            [mean(values), _worst(values)]
            for values in (
                [each for run in mine for each in run.ready_s.values()],
                [each for run in mine for each in run.transfer_s.values()],
            )
        )
        spread = f"{min(means):.2f} to {max(means):.2f}"
        cells = (*(f"{each:.2f}" for each in ready), spread, *(f"{each:.2f}" for each in sent))
        yield f"| {strategy} | {len(mine)} | {' | '.join(cells)} |"


def _worst(values: Sequence[float]) -> float:
    """The mean of the largest 5 %, of one at least."""
    count = max(round(WORST_SHARE * len(values)), 1)
    return mean(sorted(values)[-count:])


def main() -> None:
    """Play all strategies in turn, so that what the machine does besides hits all alike. A run that
    FOLDER has is not played again."""
    asked = argparse.ArgumentParser(prog="tests.system.judge_lab", description=main.__doc__)
    asked.add_argument("folder", type=Path)
    names = f"such as {STOCK} or 'leadline rate=1000'; by default the five"
    asked.add_argument("--strategy", action="append", help=names)
    asked.add_argument("--times", type=int, default=TIMES, help="0: only print")
    asked.add_argument("--mbps", type=float, nargs="+", default=MBPS, help="links of the boards")
    given = asked.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    file = given.folder / "runs.json"
    played = [RealRun(**each) for each in json.loads(file.read_text())] if file.exists() else []
    for number in range(1, given.times + 1):
        for strategy in given.strategy or STRATEGIES:
            if any((run.strategy, run.number) == (strategy, number) for run in played):
                continue
            recording = given.folder / f"{strategy.replace(' ', '-')}-{number}.recording"
            played.append(play(strategy, number, recording, given.mbps))
            file.write_text(json.dumps([asdict(run) for run in played], indent=1))
            print([*table(played[-1:])][-1], flush=True)
    print(*table(played), sep="\n")


if __name__ == "__main__":
    main()
