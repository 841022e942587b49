"""How long users wait for a small shop, under several schedulers and over several networks, on real
parts: boards on shaped links with kubelets, eleven services that call each other over HTTP, a user
outside of the cluster.

The services are created at once, and then each is restarted alone, as a rollout does, so that all
schedulers place a service while the others are there. The best placements by the model, of 2,000
by chance, are run as well. `make shop-lab` runs it; it needs root.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from random import Random

from leadline_lab import network
from leadline_lab.image_builder import layer
from leadline_lab.lab import Lab
from leadline_lab.spec import SERVER, SWITCH, BoardSpec

from tests.kube.daemon import toolchain
from tests.kube.gobuild import built_module
from tests.kube.objects import Object, node
from tests.kube.scheduler import kube_scheduler
from tests.lab.inventory import stop_processes
from tests.lab.lab_images import HTTP_PORT, push_image
from tests.lab.running import PODS, RunningLab, is_ready, running_lab, running_pod
from tests.system.daemons import eventually
from tests.system.shop_model import (
    MIX,
    NETWORKS,
    SHOP,
    USER,
    Network,
    flows,
    mean_ms,
    percentile,
    promising,
)

STOCK = "kube-scheduler"
STRATEGIES = ("dacs", "netsched", "response-time")
ALONE, DECLARED = "", "declared"
MOST_A_BOARD = 4
BEST_OF, BEST_RUN = 2000, 20
LOAD_S, USERS = 15.0, 3
# DACS takes a pod for one that computes for a second for each MB.
_DATA_MB = "0.02"
# NetSched is the paper's without it: more than its other points together.
_WITH_PEERS = {"netsched": "options = {peers = 12}\n"}
_RATE = 20.0  # requests a second of all users, as the owner declares them
_CPU = f"{1000 * (os.cpu_count() or 1) // MOST_A_BOARD}m"
_TAINT = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
_SERVICES = "/api/v1/namespaces/default/services"
_WAIT_S = 120.0


@dataclass(frozen=True)
class Method:
    """Who places the services. traffic: how it knows who talks to whom, "" if it does not."""

    scheduler: str
    traffic: str = ALONE

    def __str__(self) -> str:
        return f"{self.scheduler} {self.traffic}".rstrip()


METHODS = (
    Method(STOCK),
    *(Method(name, traffic) for name in STRATEGIES for traffic in (ALONE, DECLARED)),
)


@dataclass(frozen=True)
class Run:
    """What users saw. nodes: service -> board. modelled_ms: the mean of the model there."""

    network: str
    method: str
    nodes: Mapping[str, str]
    took_ms: Sequence[float]
    modelled_ms: float

    def __str__(self) -> str:
        where = " ".join(f"{name}:{at}" for name, at in self.nodes.items())
        return (
            f"{self.network:6} {self.method:24} p50 {percentile(self.took_ms, 0.5):7.1f} ms  "
            f"p95 {percentile(self.took_ms, 0.95):7.1f} ms  of {len(self.took_ms)}  "
            f"model {self.modelled_ms:6.1f} ms  {where}"
        )


class Shop:
    """A lab with one network."""

    def __init__(self, running: RunningLab, over: Network, image: str) -> None:
        self._running, self._network, self._image = running, over, image
        self._made = 0
        self._declared = _declared()
        for name in SHOP:
            ports = [{"port": HTTP_PORT}]
            spec = {"selector": {"app": name}, "ports": ports}
            running.api.create(_SERVICES, {"metadata": {"name": name}, "spec": spec})

    def run(self, method: Method) -> Run:
        """Have a method place the services, and users use them."""
        scheduler = "default-scheduler" if method.scheduler == STOCK else "leadline"
        if method.scheduler != STOCK:
            self._start_controller(method)
        peers = self._declared if method.traffic == DECLARED else {}
        pods = {name: self._create(name, scheduler, peers.get(name, "")) for name in SHOP}
        self._wait_ready(pods.values())
        for name in SHOP:  # a rollout of one after the other
            self._delete([pods[name]])
            pods[name] = self._create(name, scheduler, peers.get(name, ""))
            self._wait_ready([pods[name]])
        took_ms, nodes = self._use(pods)
        self._delete(pods.values())
        if method.scheduler != STOCK:
            stop_processes(self._running.lab.spec.name, "controller")
        return self._run_of(str(method), nodes, took_ms)

    def run_best(self) -> Iterator[Run]:
        """Run the placements that the model expects to be the quickest."""
        for placed in promising(self._network, MOST_A_BOARD, BEST_OF, BEST_RUN, seed=1):
            pods = {name: self._create(name, "nobody", "", placed[name]) for name in SHOP}
            self._wait_ready(pods.values())
            took_ms, nodes = self._use(pods)
            self._delete(pods.values())
            yield self._run_of("best", nodes, took_ms)

    def _run_of(self, what: str, nodes: Mapping[str, str], took_ms: Sequence[float]) -> Run:
        return Run(self._network.name, what, nodes, took_ms, mean_ms(self._network, nodes))

    def _create(self, service: str, scheduler: str, peers: str, board: str = "") -> str:
        self._made += 1
        annotations = {"leadline.dev/data-mb": _DATA_MB}
        if service == "front":
            annotations["leadline.dev/user-node"] = SERVER
        if peers:
            annotations["leadline.dev/peers"] = peers
        made = running_pod(
            f"{service}-{self._made}",
            self._image,
            cpu=_CPU,
            memory="16M",
            scheduler=scheduler,
            labels={"app": service},
            annotations=annotations,
            **({"nodeName": board} if board else {}),
        )
        operations = {name: asdict(each) for name, each in SHOP[service].items()}
        variable = {"name": "OPERATIONS", "value": json.dumps(operations)}
        container = made["spec"]["containers"][0]
        container["env"] = [variable]
        probe = {"httpGet": {"path": "/served", "port": HTTP_PORT}, "periodSeconds": 1}
        container["readinessProbe"] = probe
        return self._running.create(made)

    def _wait_ready(self, names: Iterable[str]) -> None:
        for name in names:
            eventually(partial(self._pod, name), is_ready, f"{name} is ready", _WAIT_S, 0.2)

    def _pod(self, name: str) -> Object:
        return dict(self._running.api.get(f"{PODS}/{name}"))

    def _delete(self, names: Iterable[str]) -> None:
        for name in (gone := list(names)):
            self._running.api.delete(f"{PODS}/{name}?gracePeriodSeconds=1")
        for name in gone:
            self._running.wait_gone(name)

    def _use(self, pods: Mapping[str, str]) -> tuple[list[float], dict[str, str]]:
        found = {name: self._pod(pod) for name, pod in pods.items()}
        addresses = {name: pod["status"]["podIP"] for name, pod in found.items()}
        for address in addresses.values():
            with closing(self._connected(address)) as client:
                client.request("PUT", "/peers", json.dumps(addresses))
                assert client.getresponse().status == 200
        self._load(addresses["front"], 3.0, seed=0)  # connections are made, links are known
        took_ms = self._load(addresses["front"], LOAD_S, seed=1)
        return took_ms, {name: pod["spec"]["nodeName"] for name, pod in found.items()}

    def _load(self, front: str, duration_s: float, seed: int) -> list[float]:
        """How long each request took, ms, of users that each wait for the answer before the
        next."""
        took_ms: list[float] = []
        failed: list[str] = []
        ends_s = time.monotonic() + duration_s

        def user(number: int) -> None:
            random = Random(seed * USERS + number)
            with closing(self._connected(front)) as client:
                while time.monotonic() < ends_s:
                    (doing,) = random.choices(list(MIX), list(MIX.values()))
                    began_s = time.monotonic()
                    client.request("GET", f"/{doing}")
                    answer = client.getresponse()
                    body = answer.read()
                    took_ms.append(1000 * (time.monotonic() - began_s))
                    if answer.status != 200:
                        failed.append(f"{doing}: {answer.status} {body[:80]!r}")

        users = [threading.Thread(target=user, args=(number,)) for number in range(USERS)]
        for each in users:
            each.start()
        for each in users:
            each.join()
        assert took_ms, "no user had an answer"
        assert not failed, failed[:3]
        return took_ms

    def _connected(self, address: str) -> HTTPConnection:
        namespace = self._running.lab.spec.namespace(SERVER)
        client = HTTPConnection(address, HTTP_PORT)
        client.sock = network.connect_in(namespace, (address, HTTP_PORT))
        client.sock.settimeout(60)
        return client

    def _start_controller(self, method: Method) -> None:
        options = _WITH_PEERS.get(method.scheduler, "") if method.traffic else ""
        self._running.start_controller(
            f'[strategy]\nname = "{method.scheduler}"\n{options}'
            f'[probe]\nanchors = ["{SERVER}"]\nping_interval_s = 1\ninterval_s = 5\n'
            "link_time_share = 0.05\nbytes_per_day = 1000000000000\n"
        )
        boards = set(self._network.boards)

        def measured() -> bool:
            nodes = self._running.ask("nodes")["nodes"]
            links = self._running.ask("matrix")["links"]
            known = {each["name"] for each in nodes if "bandwidth_mbps" in each["metrics"]}
            pairs = [each for each in links if each.get("rtt_source") == "measured"]
            return known >= boards and len(pairs) >= len(boards) * (len(boards) + 1) // 2

        eventually(measured, bool, "links are measured", 300, 1.0)


def _declared() -> Mapping[str, str]:
    """What owners would write of each service: whom it calls, how often and how much."""
    found: dict[str, list[str]] = {}
    for (caller, to), (requests, mbps) in flows(_RATE).items():
        if caller != USER:
            found.setdefault(caller, []).append(f"{to}={mbps:.3g}@{requests:.3g}rps")
    return {caller: ", ".join(each) for caller, each in found.items()}


def _split(lab: Lab, over: Network) -> None:
    """Put the far boards behind a switch of their own, and join both by the trunk."""
    switch = lab.spec.namespace(SWITCH)

    def ip(*words: str) -> None:
        network.run("ip", "-n", switch, *words)

    off = ("tx", "tso", "gso", "gro", "sg")  # a relay cannot send what was not split
    words = [word for name in off for word in (name, "off")]
    for host in (*over.boards, SERVER):
        command = ["ethtool", "-K", network.HOST_END, *words]
        network.run(*network.command_in(lab.spec.namespace(host), command))
    ip("link", "add", "name", "br1", "type", "bridge")
    for near, relayed in (("t0", "y0"), ("t1", "y1")):
        ip("link", "add", "name", near, "type", "veth", "peer", "name", relayed)
        bits = round(over.trunk_mbps * 1e6)
        burst = max(bits // 8 // 250, 3200)
        bucket = ["rate", f"{bits}bit", "burst", str(burst), "limit", str(burst + bits // 8 // 20)]
        network.run("tc", "-n", switch, "qdisc", "add", "dev", near, "root", "tbf", *bucket)
        for device in (near, relayed):
            network.run(*network.command_in(switch, ["ethtool", "-K", device, *words]))
    for number, board in enumerate(over.boards):
        if board in over.far:
            ip("link", "set", "dev", f"p{number}", "master", "br1")
    ip("link", "set", "dev", "t0", "master", network.BRIDGE)
    ip("link", "set", "dev", "t1", "master", "br1")
    for device in ("br1", "t0", "t1", "y0", "y1"):
        ip("link", "set", "dev", device, "addrgenmode", "none")
        ip("link", "set", "dev", device, "up")
    relay = [sys.executable, "-m", "leadline_lab.relay", "y0", "y1"]
    lab.start(SWITCH, "trunk", [*relay, "--delay-ms", f"{over.trunk_delay_ms:g}"])


def play(over: Network, methods: Sequence[Method] = METHODS, *, best: bool = True) -> Iterator[Run]:
    """Build a lab with this network, and have each method place the shop there."""
    boards = [
        BoardSpec(name, rate, over.delays_ms.get(name, 0.0))
        for name, rate in over.rates_mbps.items()
    ]
    program = built_module(Path(__file__).with_name("shop"), toolchain(), os.environ)
    with ExitStack() as stack:
        running = stack.enter_context(running_lab(boards))
        stack.enter_context(kube_scheduler(running.plane))
        running.api.add_node(node(SERVER, taints=[_TAINT], address=running.lab.address()))
        image = push_image(
            running.lab, "shop", [layer({"bin/shop": program.read_bytes()})], ["/bin/shop"]
        )
        for board in over.boards:  # all have the image
            name = running.create(running_pod(f"before-{board}", image, nodeName=board))
            _wait(running, name)
            running.api.delete(f"{PODS}/{name}?gracePeriodSeconds=0")
        if over.far:
            _split(running.lab, over)
        shop = Shop(running, over, image)
        for method in methods:
            yield shop.run(method)
        if best:
            yield from shop.run_best()


def _wait(running: RunningLab, name: str) -> None:
    def phase() -> str:
        return str(running.api.get(f"{PODS}/{name}")["status"].get("phase", ""))

    eventually(phase, lambda found: found in ("Running", "Failed", "Succeeded"), name, _WAIT_S)


def main() -> None:
    """Play all networks, or those that are named; the runs are added to FOLDER/runs.json."""
    folder, *names = sys.argv[1:]
    file = Path(folder) / "runs.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    runs = json.loads(file.read_text()) if file.exists() else []
    for name in names or NETWORKS:
        for run in play(NETWORKS[name]):
            runs.append(asdict(run))
            file.write_text(json.dumps(runs))
            print(run, flush=True)


if __name__ == "__main__":
    main()
