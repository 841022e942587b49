"""How long users wait for a small shop, under several schedulers and over several networks, on real
parts: boards on shaped links with kubelets, eleven services that call each other over HTTP, a user
outside of the cluster.

The services are created at once, and then each is restarted alone, as a rollout does, so that all
schedulers place a service while the others are there. The best placements by the model, of 2,000
by chance, are run as well. `make shop-lab` runs it; it needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from leadline_lab import network
from leadline_lab.image_builder import layer
from leadline_lab.kubelets import pod_subnet
from leadline_lab.lab import Lab, start_flows, track_connections
from leadline_lab.spec import SERVER, SWITCH, BoardSpec

from tests.kube.daemon import toolchain
from tests.kube.gobuild import built_module
from tests.kube.objects import Object, node
from tests.kube.scheduler import kube_scheduler
from tests.lab.inventory import stop_processes
from tests.lab.lab_images import HTTP_PORT, push_image
from tests.lab.running import PODS, RunningLab, is_ready, running_lab, running_pod
from tests.system.daemons import eventually
from tests.system.shop_model import NETWORKS, SHOP, USER, Network, flows, mean_ms, promising
from tests.system.shop_table import BEST, Requests, Run, read, table
from tests.system.shop_users import Users

STOCK = "kube-scheduler"
STRATEGIES = ("leadline", "dacs", "netsched", "response-time")
ALONE, DECLARED, OBSERVED = "", "declared", "observed"
MOST_A_BOARD = 4
BEST_OF, BEST_RUN = 2000, 20
LOAD_S, BEST_LOAD_S = 10.0, 5.0
COUNT_S = 30.0  # for a report
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
    *(Method(name, traffic) for traffic in (OBSERVED, DECLARED, ALONE) for name in STRATEGIES),
)


class Shop:
    """A lab with one network."""

    def __init__(self, running: RunningLab, over: Network, image: str) -> None:
        self._running, self._network, self._image = running, over, image
        self._users = Users(running.lab.spec.namespace(SERVER))
        self._made, self._front = 0, ""
        self._has_counted = False
        # Of each two services what they asked each other, and what boards counted, per second.
        self.requests: Sequence[Requests] = ()
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
        with self._observed(pods) if method.traffic == OBSERVED else nullcontext():
            for name in SHOP:  # a rollout of one after the other
                self._delete([pods[name]])
                pods[name] = self._create(name, scheduler, peers.get(name, ""))
                self._wait_ready([pods[name]])
                if method.traffic == OBSERVED:
                    self._tell(pods)
        took_ms, nodes = self._use(pods, LOAD_S)
        self._delete(pods.values())
        if method.scheduler != STOCK:
            stop_processes(self._running.lab.spec.name, "controller")
        return self._run_of(str(method), nodes, took_ms)

    def run_best(self, count: int) -> Iterator[Run]:
        """Run so many placements that the model expects to be the quickest."""
        for placed in promising(self._network, MOST_A_BOARD, BEST_OF, count, seed=1):
            pods = {name: self._create(name, "nobody", "", placed[name]) for name in SHOP}
            self._wait_ready(pods.values())
            took_ms, nodes = self._use(pods, BEST_LOAD_S, warm_s=1.0)
            self._delete(pods.values())
            yield self._run_of(BEST, nodes, took_ms)

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

    def _tell(self, pods: Mapping[str, str]) -> dict[str, str]:
        """Tell each service the addresses of all, and return these."""
        found = {name: self._pod(pod)["status"]["podIP"] for name, pod in pods.items()}
        self._front = found["front"]
        self._users.tell(found)
        return found

    def _use(
        self, pods: Mapping[str, str], load_s: float, warm_s: float = 3.0
    ) -> tuple[Sequence[float], dict[str, str]]:
        addresses = self._tell(pods)
        self._users.took_ms(addresses["front"], warm_s, seed=0)  # connections are made
        took_ms = self._users.took_ms(addresses["front"], load_s, seed=1)
        return took_ms, {name: self._pod(pod)["spec"]["nodeName"] for name, pod in pods.items()}

    @contextmanager
    def _observed(self, pods: Mapping[str, str]) -> Iterator[None]:
        """Users use the shop until the block ends, and their boards count. pods: of each service,
        now. It begins once decisions know who talks to whom."""
        lab = self._running.lab
        addresses = self._tell(pods)
        with self._users.busy(lambda: self._front):
            before, began_s = self._asked(addresses), time.monotonic()
            counting = start_flows(lab, self._network.boards, COUNT_S)
            eventually(self._counted, lambda found: found.keys() >= before.keys(), "edges", 300, 1)
            if not self._has_counted:
                after, took_s = self._asked(addresses), time.monotonic() - began_s
                per_s = {pair: (after[pair] - before[pair]) / took_s for pair in before}
                counted, name = self._counted(), self._network.name
                self.requests = [
                    Requests(name, *pair, asked=rate, least=counted[pair][0], most=counted[pair][1])
                    for pair, rate in per_s.items()
                ]
                self._has_counted = True
            eventually(self._used, lambda found: found >= before.keys(), "it is used", 150, 1)
            yield
            stop_processes(lab.spec.name, *(each.name for each in counting))

    def _asked(self, addresses: Mapping[str, str]) -> dict[tuple[str, str], int]:
        """How often services have asked each other, by their own word."""
        return {
            (caller, to): count
            for caller, address in addresses.items()
            for to, count in self._users.ask(address, "/asked").items()
        }

    def _counted(self) -> dict[tuple[str, str], tuple[float, float]]:
        """Of each two services that talk the least and the most requests a second, as boards
        counted."""
        found = {}
        for edge in self._running.ask("traffic")["edges"]:
            ends = [edge[end].rpartition("/")[2] for end in ("source", "destination")]
            caller, to = (end.rpartition("-")[0] for end in ends)  # pods stand for their service
            if caller in SHOP and to in SHOP and "hour" in edge:
                bounds = (edge.get(f"requests_{each}_per_s", 0.0) for each in ("least", "most"))
                found[caller, to] = (next(bounds), next(bounds))
        return found

    def _used(self) -> set[tuple[str, str]]:
        """Each two services of which decisions know that they talk: they read it once a minute."""
        traffic = self._running.ask("snapshot").get("traffic", {})
        return {
            (each["labels"]["app"], peer["workload"]["labels"]["app"])
            for each in traffic.get("workloads", [])
            for peer in each["peers"]
            if "workload" in peer
        }

    def _start_controller(self, method: Method) -> None:
        if not (method.traffic == OBSERVED and self._has_counted):
            # What boards counted for another method is not known to this one.
            for file in self._running.lab.directory.glob("decisions.db*"):
                file.unlink()
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


def play(
    over: Network, methods: Sequence[Method] = METHODS, best: int = BEST_RUN
) -> Iterator[Run | Requests]:
    """Build a lab with this network, and have each method place the shop there; then run so many
    of the best placements."""
    boards = [
        BoardSpec(name, rate, over.delays_ms.get(name, 0.0))
        for name, rate in over.rates_mbps.items()
    ]
    program = built_module(Path(__file__).with_name("shop"), toolchain(), os.environ)
    with ExitStack() as stack:
        running = stack.enter_context(running_lab(boards, flows=True))
        stack.enter_context(kube_scheduler(running.plane))
        running.api.add_node(node(SERVER, taints=[_TAINT], address=running.lab.address()))
        for board in over.boards:  # as a cluster has it, of which boards' own addresses are known
            spec = {"podCIDR": (own := str(pod_subnet(running.lab.spec, board))), "podCIDRs": [own]}
            running.api.patch(f"/api/v1/nodes/{board}", {"spec": spec})
        track_connections(running.lab, over.boards)
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
        yield from shop.requests
        yield from shop.run_best(best)


def _wait(running: RunningLab, name: str) -> None:
    def phase() -> str:
        return str(running.api.get(f"{PODS}/{name}")["status"].get("phase", ""))

    eventually(phase, lambda found: found in ("Running", "Failed", "Succeeded"), name, _WAIT_S)


def main() -> None:
    """Play all networks, or those that are named; what comes of it is added to FOLDER/runs.json and
    requests.json."""
    asked = argparse.ArgumentParser(prog="shop_lab", description=__doc__)
    asked.add_argument("folder", type=Path)
    asked.add_argument("networks", nargs="*", default=[*NETWORKS], metavar="NETWORK")
    asked.add_argument("--method", action="append", help="by default all", metavar="METHOD")
    asked.add_argument("--best", type=int, default=BEST_RUN, help="how many of the best are run")
    given = asked.parse_args()
    methods = [each for each in METHODS if given.method is None or str(each) in given.method]
    wrong: list[str] = []
    for name in given.networks:
        for found in play(NETWORKS[name], methods, given.best):
            print(found, flush=True)
            _add(given.folder / ("runs.json" if isinstance(found, Run) else "requests.json"), found)
            if isinstance(found, Requests) and not found.is_held:
                wrong.append(str(found))
    print(*table(read(given.folder)), sep="\n")
    assert not wrong, wrong


def _add(file: Path, found: Run | Requests) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(file.read_text()) if file.exists() else []
    file.write_text(json.dumps([*known, asdict(found)]))


if __name__ == "__main__":
    main()
