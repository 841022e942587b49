"""Image pulls on real kubelets: does the controller predict them, and do pods start sooner?

Four boards on shaped links pull from the lab's registry. Leadline's infrastructure-aware places
pods whose images share layers; then, in a fresh lab, the stock kube-scheduler with its
ImageLocality places the same pods. `python -m tests.system.layers_lab` prints both; it needs root.
"""

from __future__ import annotations

import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from leadline_controller.kubeobjects.image_pulls import read_pull
from leadline_controller.kubeobjects.manifest import read_pod
from leadline_lab.kubelets import registry_address
from leadline_lab.spec import SERVER, BoardSpec

from tests.kube.scheduler import kube_scheduler
from tests.lab.lab_images import SLEEP, push_image, random_layer
from tests.lab.running import EVENTS, PODS, RunningLab, running_lab, running_pod
from tests.system.daemons import clean_environ, eventually, leadline

BOARDS = (
    BoardSpec("n1", rate_mbps=100),
    BoardSpec("n2", rate_mbps=60),
    BoardSpec("n3", rate_mbps=30),
    BoardSpec("n4", rate_mbps=12),
)
# MB of the layers of each image; a letter is a layer that several images share.
SHARED_MB = {"p": 20.0, "q": 14.0}
IMAGES: Mapping[str, tuple[str, float]] = {
    "p1": ("p", 4.0),
    "p2": ("p", 6.0),
    "p3": ("p", 3.0),
    "q1": ("q", 10.0),
    "q2": ("q", 3.0),
    "q3": ("q", 5.0),
    "r1": ("", 26.0),
}
WARM_UP_MB = (4.0, 20.0)
NEAR_S = 0.3
_PODS, _GAP_S, _SEED = 24, 1.5, 7
# A board has as many cores as the machine, so this fills the boards with pods one after the other.
CPU = f"{1000 * (os.cpu_count() or 1) // 8}m"
_WAIT_S = 240.0
Ask = Callable[[], dict[str, Any]]  # what `leadline images` says
_WAITED = re.compile(r"\((?P<all>[0-9a-z.µ]+) including waiting\)")


@dataclass(frozen=True)
class Start:
    """A pod's start."""

    image: str
    node: str
    real_s: float  # from its creation until it was ready
    # Until its image was there, the wait for others included, as its kubelet says; 0 if it was
    # there.
    pull_s: float
    beside_s: float | None  # what it took beside its pull, as the controller reads its conditions
    predicted_s: float | None = None  # of that, when its node was chosen
    # What its node lacked and had then. None under kube-scheduler, or if it was unknown.
    missing_mb: float | None = None
    shared_mb: float | None = None

    @property
    def error(self) -> float | None:
        """(predicted - real) / real of a pull that took a second at least."""
        if self.predicted_s is None or self.pull_s < 1:
            return None
        return self.predicted_s / self.pull_s - 1

    @property
    def is_right(self) -> bool:
        """Whether the prediction is within 20 %, or within 0.3 s: so much a pull's time varies
        with what else the boards do on this machine's cores."""
        if self.predicted_s is None:
            return False
        return abs(self.predicted_s - self.pull_s) <= max(0.2 * self.pull_s, NEAR_S)


@dataclass(frozen=True)
class Played:
    """The starts of all pods, in the order of their creation. images: what `leadline images` said
    in the end; empty under kube-scheduler."""

    starts: Sequence[Start]
    images: Mapping[str, Any]


def play(scheduler: str, sequence: Sequence[str], boards: Sequence[BoardSpec] = BOARDS) -> Played:
    """Build a lab, let `scheduler` (infrastructure-aware or kube-scheduler) place a pod of each of
    these images, one after the other, and remove the lab."""
    with ExitStack() as stack:
        running = stack.enter_context(running_lab(boards))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="leadline-layers-")))
        grpc = ""
        if scheduler == "kube-scheduler":
            stack.enter_context(kube_scheduler(running.plane))
        else:
            grpc = start_controller(running, folder, scheduler)
        names = push_images(running, set(sequence))
        warm_up(running)
        by = "leadline" if grpc else "default-scheduler"
        starts = _placed(running, sequence, names, by, grpc)
        return Played(starts, all_known(partial(images, grpc)) if grpc else {})


def push_images(
    running: RunningLab, wanted: set[str], command: Sequence[str] = SLEEP
) -> dict[str, str]:
    """Push these of IMAGES; returns their names for pods."""
    shared = {name: random_layer(mb, seed=ord(name)) for name, mb in SHARED_MB.items()}
    names = {}
    for number, (name, (base, own_mb)) in enumerate(IMAGES.items()):
        if name in wanted:
            layers = [*([shared[base]] if base else []), random_layer(own_mb, seed=500 + number)]
            names[name] = push_image(running.lab, name, layers, command)
    return names


def start_controller(running: RunningLab, folder: Path, strategy: str) -> str:
    """Start a controller on the lab's server, without agents; returns its gRPC address."""
    registry = registry_address(running.lab)
    (folder / "registries.yaml").write_text(
        json.dumps({"mirrors": {registry: {"endpoint": [f"http://{registry}"]}}})
    )
    grpc = f"unix:{folder}/grpc"
    (folder / "controller.toml").write_text(
        'cluster = "lab"\nwarm_up_s = 0\n'
        '[broker]\nhost = "127.0.0.1"\n'
        f'[kubernetes]\nkubeconfig = "{running.kubeconfig}"\n'
        f'[strategy]\nname = "{strategy}"\nseed = 1\n'
        f'[grpc]\naddress = "{grpc}"\n'
        f'[images]\nregistries_file = "{folder}/registries.yaml"\nrequests_per_hour = 100\n'
        f'[decisions]\npath = "{folder}/decisions.db"\n'
    )
    unset = [f"--unset={name}" for name in os.environ if name not in clean_environ()]
    command = [sys.executable, "-m", "leadline_controller", "run"]
    running.lab.start(
        SERVER,
        "controller",
        [
            *("env", *unset, f"STATE_DIRECTORY={folder}"),
            *(*command, "--config", str(folder / "controller.toml")),
        ],
    )
    eventually(
        lambda: leadline("images", "-o", "json", "--address", grpc).returncode,
        lambda code: code == 0,
        "the controller answers",
        every_s=0.5,
    )
    return grpc


def images(grpc: str) -> dict[str, Any]:
    """What `leadline images` says."""
    answer = leadline("images", "-o", "json", "--address", grpc)
    assert answer.returncode == 0, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def all_known(ask: Ask) -> dict[str, Any]:
    """What `leadline images` says once the registry was asked for all that nodes list: kubelets
    list an image some seconds after its pull, and by two names."""
    return eventually(
        ask,
        lambda found: all(each["images"] == each["wanted"] for each in found["registries"]),
        "the registry told the layers of all images",
        every_s=0.5,
    )


def warm_up(running: RunningLab) -> None:
    """Pulls of different sizes on each board, as in a cluster that is in use."""
    for number, mb in enumerate(WARM_UP_MB):
        layer = random_layer(mb, seed=900 + number)
        image = push_image(running.lab, f"warm{number}", [layer], SLEEP)
        for board in running.lab.spec.boards:
            pod = running_pod(f"warm{number}-{board.name}", image, nodeName=board.name)
            name = running.create(pod)
            running.wait_running(name)
            running.api.delete(f"{PODS}/{name}?gracePeriodSeconds=0")


def tell_images(running: RunningLab, names: Mapping[str, str], ask: Ask) -> None:
    """Wait until the controller knows the layers of these images: the first pod of each tells it
    the name."""
    before = sum(each["wanted"] for each in all_known(ask)["registries"])
    for name in sorted(names):
        running.create(running_pod(f"known-{name}", names[name], scheduler="nobody"))
    eventually(
        lambda: ask()["registries"],
        lambda found: found and found[0]["images"] == found[0]["wanted"] >= before + len(names),
        "the layers of all images are known",
        every_s=0.5,
    )


def _placed(
    running: RunningLab,
    sequence: Sequence[str],
    names: Mapping[str, str],
    scheduler: str,
    grpc: str,
) -> list[Start]:
    if grpc:
        tell_images(running, names, partial(images, grpc))
    created: dict[str, float] = {}
    ready: dict[str, tuple[float, str]] = {}
    deadline_s = time.monotonic() + _WAIT_S
    left = [(f"pod-{number}-{image}", image) for number, image in enumerate(sequence)]
    image_of = dict(left)
    next_s = time.monotonic()
    while len(ready) < len(sequence):
        now_s = time.monotonic()
        assert now_s < deadline_s, f"not ready: {created.keys() - ready.keys()}"
        if left and now_s >= next_s:
            name, image = left.pop(0)
            pod = running_pod(name, names[image], cpu=CPU, memory="8M", scheduler=scheduler)
            created[name] = now_s
            running.create(pod)
            next_s += _GAP_S
        for pod in running.api.get(PODS)["items"]:
            name = pod["metadata"]["name"]
            conditions = pod["status"].get("conditions", [])
            is_ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
            if is_ready and name in created and name not in ready:
                ready[name] = time.monotonic() - created[name], pod["spec"]["nodeName"]
        time.sleep(0.1)
    events = running.api.get(EVENTS)["items"]
    pods = [read_pod(each) for each in running.api.get(PODS)["items"]]
    beside_s = {each.name: each.starting_s for each in pods}
    return [
        Start(
            image_of[name],
            ready[name][1],
            ready[name][0],
            _pull_s(events, name),
            beside_s[name],
            **(_predicted(grpc, name) if grpc else {}),
        )
        for name in created
    ]


def _pull_s(events: Sequence[Mapping[str, Any]], pod: str) -> float:
    """How long the pod waited for its image, by its kubelet's event."""
    for event in events:
        pull = read_pull(event)
        if event["involvedObject"].get("name") == pod and pull is not None and pull.took_s:
            waited = _WAITED.search(event["message"])
            text = f'Successfully pulled image "x" in {waited["all"]}' if waited else ""
            whole = read_pull({**event, "message": text})
            return whole.took_s or pull.took_s if whole else pull.took_s
    return 0.0


def _predicted(grpc: str, pod: str) -> dict[str, float | None]:
    answer = leadline("explain", f"default/{pod}", "-o", "json", "--address", grpc)
    assert answer.returncode == 0, answer.stderr
    explained = json.loads(answer.stdout)
    pull = explained["scores"][explained["node"]].get("pull", {})
    names = {"predicted_s": "expected_s", "missing_mb": "missing_mb", "shared_mb": "shared_mb"}
    return {name: pull.get(of) for name, of in names.items()}


def random_sequence(count: int = _PODS, seed: int = _SEED) -> list[str]:
    """Images of pods, drawn with repeats."""
    return random.Random(seed).choices(sorted(IMAGES), k=count)


def table(starts: Sequence[Start]) -> str:
    """All starts as text."""
    lines = ["image  node  ready s  image there s  predicted s  error"]
    for start in starts:
        predicted = "" if start.predicted_s is None else f"{start.predicted_s:.2f}"
        error = "" if start.error is None else f"{start.error:+.0%}"
        lines.append(
            f"{start.image:5}  {start.node:4}  {start.real_s:7.2f}  {start.pull_s:13.2f}  "
            f"{predicted:>11}  {error:>5}"
        )
    return "\n".join(lines)


def summary(starts: Sequence[Start]) -> str:
    """Seconds until pods are ready, where they are, and how good the predictions were."""
    real = sorted(start.real_s for start in starts)
    where = Counter(start.node for start in starts)
    errors = sorted(abs(start.error) for start in starts if start.error is not None)
    text = (
        f"ready after {statistics.mean(real):.2f} s on average, median "
        f"{statistics.median(real):.2f}, at most {real[-1]:.2f}; pods "
        + "/".join(str(where[board.name]) for board in BOARDS)
    )
    if not errors:
        return text
    right, within = sum(start.is_right for start in starts), sum(error <= 0.2 for error in errors)
    return (
        f"{text}; {right} of {len(starts)} predictions within 20 % or {NEAR_S} s; of the pulls of "
        f"a second and more {within} of {len(errors)} within 20 %, median error "
        f"{statistics.median(errors):.0%}, largest {errors[-1]:.0%}"
    )


def main() -> None:
    """Play both schedulers."""
    sequence = random_sequence()
    chosen = sys.argv[1:] or ["infrastructure-aware", "kube-scheduler"]
    for scheduler in chosen:
        try:
            starts = play(scheduler, sequence).starts
        except subprocess.CalledProcessError as error:
            sys.exit(str(error))
        print(f"{scheduler}\n{table(starts)}\n{summary(starts)}\n", flush=True)


if __name__ == "__main__":
    main()
