"""What the controller knows of real links, and what that costs them.

Four boards with 100 Mbit/s and two with a gigabit, in network namespaces; a real agent on each,
mosquitto, iperf3, a real API server, and the controller with the settings of the package, but for
the bytes a day: 1 GB is less than 0.1 % of a gigabit link's time. After some minutes, and once the
gigabit links are known as such, one board's link is throttled to 5 Mbit/s. Pods come all the time.
A process at the switch counts the packets on each board's link, so the controller's own accounts
are not believed.

There is no kubelet, so pods do not run. `python -m tests.system.links_lab [MINUTES]` prints the
timeline; it needs root.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from math import nan
from pathlib import Path
from typing import Any

import grpc
from leadline_controller.cli.nodes import document
from leadline_lab import lab as labs
from leadline_lab.lab import AgentSettings, start_agents
from leadline_lab.spec import SERVER, SWITCH, BoardSpec, LabSpec
from leadline_wire import topics
from leadline_wire.v1 import control_pb2 as pb
from leadline_wire.v1.control_pb2_grpc import InspectionStub

from tests.kube.api import Api
from tests.kube.control_plane import control_plane
from tests.kube.objects import node, pod
from tests.support.agents import Listener, listening
from tests.support.mosquitto import mosquitto
from tests.support.ports import free_port
from tests.system import link_traffic
from tests.system.daemons import Daemon, eventually, leadline
from tests.system.link_traffic import Traffic

SLOW_MBPS, FAST_MBPS, THROTTLED_MBPS = 100.0, 1000.0, 5.0
SLOW = tuple(BoardSpec(f"n{number}", rate_mbps=SLOW_MBPS) for number in range(1, 5))
FAST = tuple(BoardSpec(f"g{number}", rate_mbps=FAST_MBPS) for number in range(1, 3))
BOARDS = (*SLOW, *FAST)
RATES_MBPS = {board.name: board.rate_mbps or 0.0 for board in BOARDS}
NOTICED_S, AFTER_S = 30.0, 20.0
WANTED_MBPS = 150.0
LEAST_FAST_MBPS = 500.0
BYTES_PER_DAY = 20_000_000_000
_SPEC = LabSpec(boards=BOARDS)
_MODULE, _TRAFFIC = "tests.system.links_lab", "tests.system.link_traffic"
_CLUSTER, _PORT, _IPERF3_PORT = "lab", 1883, 5201
_PODS, _NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
_MASTER_TAINT = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
_EVERY_S = 1.0
_KNOWN_S = 300.0
_FAST_S = 60.0
# Budgets of boards that are always busy may take minutes to pay for the tests that show it.
_LATEST_S = 600.0
_PLACED_S = 120.0
_SET_UP_S = 120.0
_COUNTED_S = 2.0  # by then the packets of a test are counted


@dataclass
class Seen:
    """One look at the controller."""

    at_s: float  # since its start
    mbps: dict[str, float]  # the bandwidth that is believed of each board
    bounds: list[str]  # those of which it is a lower bound
    suspects: list[str]  # those that a test contradicts
    limited: list[str]  # those that a busy host limited

    def changed(self, before: Seen) -> bool:
        """Whether it differs from an earlier look by more than the noise of a test."""
        known = {name: mbps / before.mbps.get(name, nan) for name, mbps in self.mbps.items()}
        return any(not 0.9 < share < 1.1 for share in known.values()) or (
            (self.bounds, self.suspects, self.limited)
            != (before.bounds, before.suspects, before.limited)
        )

    def __str__(self) -> str:
        values = "  ".join(
            f"{name}{'>=' if name in self.bounds else '  '}{self.mbps.get(name, nan):6.1f}"
            f"{'?' if name in self.suspects else '*' if name in self.limited else ' '}"
            for name in RATES_MBPS
        )
        return f"{self.at_s:7.1f} s  {values}"


@dataclass
class Played:
    """The results. Times are seconds since the start of the controller."""

    seen: list[Seen] = field(default_factory=list)
    known_s: float = nan  # when the bandwidth of every board was known
    # Since when each gigabit board is known as one; those that are not yet are not in it.
    fast_s: dict[str, float] = field(default_factory=dict)
    # The boards whose bandwidth is host-limited at `ended_s`.
    limited: list[str] = field(default_factory=list)
    ended_s: float = nan
    tests: dict[str, int] = field(default_factory=dict)  # how many began until `known_s`
    # The traffic of each board's link from the start to `known_s`.
    first: dict[str, Traffic] = field(default_factory=dict)
    then: dict[str, Traffic] = field(default_factory=dict)  # from there to `ended_s`
    # The bytes that the controller charged to each board, and those that were counted until then.
    accounts: dict[str, tuple[int, int]] = field(default_factory=dict)
    table: str = ""  # what `leadline budget` prints at `ended_s`
    throttled: str = ""
    throttled_s: float = nan
    # When the controller's answers showed the throttled board's link as slow, NaN if they never
    # did.
    noticed_s: float = nan
    # Where and when the pod that wants 150 Mbit/s was placed.
    fast_pod: tuple[str, float] = ("", nan)
    # When each of the others was created, and where it was placed.
    pods: list[tuple[float, str]] = field(default_factory=list)
    # Results that a busy host limited, by board.
    hindered: dict[str, int] = field(default_factory=dict)
    # The boards with tests that failed before `ended_s`, and why.
    failed: dict[str, list[str]] = field(default_factory=dict)
    # The ages of what is known of each board at `ended_s`.
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    results: list[tuple[float, str]] = field(default_factory=list)  # of the throttled board's tests

    def noticed_after_s(self) -> float:
        """How long after the throttling the last pod went to that board."""
        late = [at_s - self.throttled_s for at_s, board in self.pods if board == self.throttled]
        return max(late, default=0.0)

    def share(self, board: str, kind: str, *, whole: bool = True) -> float:
        """The share of a link's time that a kind of packets took, both directions together; of the
        whole time up to `ended_s`, or without what came before `known_s`."""
        found = self.then[board].kinds[kind] + (self.first[board].kinds[kind] if whole else 0)
        passed_s = self.ended_s - (0 if whole else self.known_s)
        return found * 8e-6 / RATES_MBPS[board] / passed_s

    def show(self) -> str:
        """The results as text."""
        lines = ["believed of each link, Mbit/s (>= lower bound, * host-limited, ? suspect):"]
        for before, now in zip([None, *self.seen], self.seen, strict=False):
            if before is None or now.changed(before):
                lines.append(str(now))
        board, at_s = self.fast_pod
        lines.append(f"all known after {self.known_s:.1f} s")
        for board, at_s in self.fast_s.items():
            lines.append(f"{board} known as at least {LEAST_FAST_MBPS:g} after {at_s:.1f} s")
        lines.append(f"a pod that wants {WANTED_MBPS:g} Mbit/s: on {board} after {at_s:.1f} s")
        lines.append(
            f"{self.throttled} throttled to {THROTTLED_MBPS:g} Mbit/s at {self.throttled_s:.1f} s; "
            f"the last pod went there {self.noticed_after_s():.1f} s later"
        )
        for at_s, result in self.results:
            if at_s > self.throttled_s:
                lines.append(f"{at_s:7.1f} s  {result}")
        lines.append(f"\nshare of link time until {self.ended_s:.0f} s, %, counted at the switch:")
        lines.append(f"{'board':6}" + "".join(f"{kind:>11}" for kind in link_traffic.KINDS))
        for name in RATES_MBPS:
            shares = (100 * self.share(name, kind) for kind in link_traffic.KINDS)
            lines.append(f"{name:6}" + "".join(f"{share:11.4f}" for share in shares))
        lines.append(f"results that a busy host limited: {self.hindered or 'none'}")
        lines.append(f"tests that failed: {self.failed or 'none'}")
        return "\n".join([*lines, "", self.table])


def play(name: str, minutes: float) -> Played:
    """Build a lab of this name, watch it on its server for that long, and remove the lab."""
    lab = labs.up(LabSpec(name, boards=BOARDS))
    try:
        counts = lab.directory / "traffic.json"
        ports = [f"p{number}" for number in range(len(BOARDS))]
        argv = [str(counts), str(_IPERF3_PORT), str(_PORT), *ports]
        lab.start(SWITCH, "traffic", [sys.executable, "-m", _TRAFFIC, *argv])
        start_agents(lab, AgentSettings(_CLUSTER, lab.address(), _PORT, interval_s=10))
        # In the server's namespace, because the API server listens on its loopback.
        question = json.dumps([name, str(counts), minutes])
        argv = lab.command(SERVER, [sys.executable, "-m", _MODULE, question])
        limit_s = 60 * minutes + _KNOWN_S + _FAST_S + _PLACED_S + _LATEST_S + NOTICED_S + AFTER_S
        limit_s += 3 * _SET_UP_S
        done = subprocess.run(argv, capture_output=True, text=True, timeout=limit_s)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
    finally:
        labs.down(name)
    for part in ("first", "then"):
        found[part] = {board: Traffic(**each) for board, each in found[part].items()}
    return Played(**{**found, "seen": [Seen(**each) for each in found["seen"]]})


def _act(name: str, counts: Path, minutes: float) -> Played:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="leadline-links-")))
        address = _SPEC.address(SERVER)
        stack.enter_context(mosquitto(host=address, port=_PORT))
        heard = stack.enter_context(listening(_PORT, address, cluster=_CLUSTER))
        plane = stack.enter_context(control_plane(folder))
        api = Api(plane.kubeconfig)
        for board in BOARDS:
            labels = {"link": "fast" if board in FAST else "slow"}
            at = _SPEC.address(board.name)
            api.add_node(node(board.name, "64", pods=1000, labels=labels, address=at))
        api.add_node(node(SERVER, taints=[_MASTER_TAINT], address=address))
        serve = f"127.0.0.1:{free_port()}"
        config = folder / "controller.toml"
        config.write_text(_controller_toml(address, plane.kubeconfig, serve))
        controller = Daemon("leadline_controller", config, folder / "controller.log")
        stack.callback(controller.stop)
        controller.start()
        stub = InspectionStub(stack.enter_context(grpc.insecure_channel(serve)))
        watch = _Watch(api, serve, stub, counts, time.monotonic())
        return watch.watch(name, 60 * minutes, heard)


def _controller_toml(address: str, kubeconfig: Path, serve: str) -> str:
    # All boards share one machine, and bandwidth alone is to decide.
    weights = "cpu = 0, memory = 0, disk = 0, packets_received = 0, packets_sent = 0"
    return (
        f'cluster = "{_CLUSTER}"\nwarm_up_s = 3\n'
        f'[broker]\nhost = "{address}"\nport = {_PORT}\nplaintext = true\n'
        f'[kubernetes]\nkubeconfig = "{kubeconfig}"\n'
        f'[strategy]\nname = "netsched"\noptions = {{{weights}}}\n'
        f'[grpc]\naddress = "{serve}"\n'
        f'[probe]\nanchors = ["{SERVER}"]\nbytes_per_day = {BYTES_PER_DAY}\n'
    )


@dataclass
class _Watch:
    api: Api
    address: str
    stub: InspectionStub
    counts: Path
    begin_s: float
    played: Played = field(default_factory=Played)
    created_s: dict[str, float] = field(default_factory=dict)

    def watch(self, name: str, duration_s: float, heard: Listener) -> Played:
        played = self.played
        fast = {"leadline.dev/bandwidth-mbps": f"{WANTED_MBPS:g}"}
        self._create("fast", annotations=fast, node_selector={"link": "fast"})
        # The controller has answered nothing yet while it starts.
        eventually(self._nodes, lambda nodes: nodes, "the controller answers", _SET_UP_S)
        begin = self._until(0.0, lambda: True)
        self._until(_KNOWN_S, lambda: set(played.seen[-1].mbps) == set(RATES_MBPS))
        played.known_s, played.tests = self._at_s(), self._tests()
        played.first = self._traffic(begin)
        known = link_traffic.read(self.counts)
        self._until(duration_s - self._at_s(), lambda: False)
        self._until(_FAST_S, lambda: played.fast_s.keys() >= {board.name for board in FAST})
        self._until(_PLACED_S, lambda: bool(played.fast_pod[0]))
        played.then, played.ended_s = self._traffic(known), self._at_s()
        played.limited = played.seen[-1].limited
        played.accounts = self._accounts(begin)
        played.table = self._ask("budget", "-o", "wide")
        played.metrics = {
            node["name"]: {metric: each["age_s"] for metric, each in node["metrics"].items()}
            for node in self._nodes()
            if node["name"] in RATES_MBPS
        }
        # Without a change, pods go to the board whose bandwidth was measured highest.
        for board in SLOW:
            self._create(f"before-{board.name}", node_selector={"link": "slow"})
        before = self._bound("before")
        played.throttled = max(set(before.values()), key=list(before.values()).count)
        _throttle(name, played.throttled)
        played.throttled_s = self._at_s()
        self._until(_LATEST_S, self._shows_the_slow_link, pods=True)
        if self._shows_the_slow_link():
            played.noticed_s = self._at_s()
        watched_s = self._at_s() - played.throttled_s
        self._until(max(AFTER_S, NOTICED_S + AFTER_S - watched_s), lambda: False, pods=True)
        after = self._bound("after")
        played.pods = sorted((self.created_s[pod], board) for pod, board in after.items())
        boot_s = time.clock_gettime(time.CLOCK_BOOTTIME) - self._at_s()
        for each in list(heard.heard):
            report, sender = each.message, each.topic.node
            if each.topic.kind != topics.Kind.BANDWIDTH:
                continue
            at_s = report.timing.measured_boot_ms / 1000 - boot_s
            if report.outcome != report.DONE and at_s <= played.ended_s:
                for end in (sender, report.peer):
                    played.failed.setdefault(end, []).append(report.detail)
            if played.throttled in (sender, report.peer):
                limited = ", busy host" if report.hindrances else ""
                outcome = report.Outcome.Name(report.outcome).lower()
                rate = f"{report.bandwidth_mbps:.1f} Mbit/s" if report.bandwidth_mbps else "sent"
                size = f"{report.transferred_bytes} bytes in {report.duration_ms} ms"
                result = f"{sender} with {report.peer}: {outcome}, {rate}, {size}{limited}"
                played.results.append((at_s, f"{result} {report.detail}".rstrip()))
            if report.hindrances:
                played.hindered[report.peer] = played.hindered.get(report.peer, 0) + 1
        return played

    def _shows_the_slow_link(self) -> bool:
        """Whether the throttled board is believed to have less than half of another one."""
        mbps = self.played.seen[-1].mbps
        others = [
            mbps.get(board.name, 0.0) for board in SLOW if board.name != self.played.throttled
        ]
        return mbps.get(self.played.throttled, nan) < max(others) / 2

    def _until(
        self, limit_s: float, is_over: Callable[[], bool], *, pods: bool = False
    ) -> dict[str, Traffic]:
        """Look at the controller each second, and create a pod if `pods`. Returns the traffic
        until now."""
        ends_s = time.monotonic() + limit_s
        while True:
            due_s = time.monotonic() + _EVERY_S
            if pods:
                self._create(f"after-{len(self.created_s)}", node_selector={"link": "slow"})
            self._look()
            if is_over() or due_s > ends_s:
                return link_traffic.read(self.counts)
            time.sleep(max(0.0, due_s - time.monotonic()))

    def _look(self) -> None:
        known = {node["name"]: node["metrics"].get("bandwidth_mbps") for node in self._nodes()}
        known = {name: known[name] for name in RATES_MBPS if known.get(name)}
        self.played.seen.append(
            Seen(
                self._at_s(),
                {name: each["value"] for name, each in known.items()},
                [name for name, each in known.items() if each.get("lower_bound")],
                [name for name, each in known.items() if each.get("suspect")],
                [name for name, each in known.items() if each.get("host_limited")],
            )
        )
        now_s, believed = self._at_s(), self.played.seen[-1].mbps
        for each in FAST:
            if believed.get(each.name, 0.0) < LEAST_FAST_MBPS:
                self.played.fast_s.pop(each.name, None)
            else:
                self.played.fast_s.setdefault(each.name, now_s)
        if not self.played.fast_pod[0]:
            board = self.api.get(f"{_PODS}/fast")["spec"].get("nodeName", "")
            self.played.fast_pod = (board, self._at_s())

    def _create(self, name: str, **fields: Any) -> None:
        self.created_s[name] = self._at_s()
        self.api.create(_PODS, pod(name, cpu="1m", memory="1M", **fields))

    def _bound(self, prefix: str) -> dict[str, str]:
        """Pod -> its board, of the pods with this prefix, once all of them are bound."""

        def found() -> dict[str, str]:
            pods = self.api.get(_PODS)["items"]
            boards = {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in pods}
            return {name: at for name, at in boards.items() if name.startswith(prefix)}

        return eventually(found, lambda bound: all(bound.values()), f"all pods {prefix}* are bound")

    def _traffic(self, before: Mapping[str, Traffic]) -> dict[str, Traffic]:
        now = link_traffic.read(self.counts)
        return {board: now[f"p{at}"].since(before[f"p{at}"]) for at, board in enumerate(RATES_MBPS)}

    def _tests(self) -> dict[str, int]:
        budget = json.loads(self._ask("budget", "-o", "json"))
        return {each["name"]: each["tests"] for each in budget["nodes"]}

    def _accounts(self, begin: Mapping[str, Traffic]) -> dict[str, tuple[int, int]]:
        """Of each board the bytes that were charged and those that were counted, at a time when no
        test of it ran, began or ended."""
        found: dict[str, tuple[int, int]] = {}

        def settled() -> dict[str, tuple[int, int]]:
            answer = self.stub.GetBudget(pb.GetBudgetRequest(), timeout=10.0)
            busy = {end for test in answer.running for end in (test.client, test.server)}
            return {x.name: (x.bytes, x.tests) for x in answer.nodes if x.name not in busy}

        def look() -> dict[str, tuple[int, int]]:
            before = settled()
            time.sleep(_COUNTED_S)
            traffic, after = self._traffic(begin), settled()
            for name in (after.keys() & RATES_MBPS) - found.keys():
                if after[name] == before.get(name):
                    found[name] = after[name][0], traffic[name].kinds["bandwidth"]
            return found

        return eventually(look, lambda found: len(found) == len(RATES_MBPS), "each board rests")

    def _nodes(self) -> list[dict[str, Any]]:
        """What `leadline nodes -o json` prints, without a new process for each look."""
        try:
            answer = self.stub.ListNodes(pb.ListNodesRequest(), timeout=10.0)
        except grpc.RpcError:
            return []  # it starts
        return [document(status) for status in answer.nodes]

    def _ask(self, *question: str) -> str:
        answer = leadline(*question, "--address", self.address)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def _at_s(self) -> float:
        return time.monotonic() - self.begin_s


def _throttle(name: str, board: str) -> None:
    """Throttle a board's link, both of its ends, as the lab shapes it: with a queue of 50 ms."""
    spec = LabSpec(name, boards=BOARDS)
    bits, port = round(THROTTLED_MBPS * 1e6), f"p{list(RATES_MBPS).index(board)}"
    burst = max(bits // 8 // 250, 3200)
    for host, device in ((board, "eth0"), (SWITCH, port)):
        namespace = spec.namespace(host)
        bucket = ["rate", f"{bits}bit", "burst", str(burst), "limit", str(burst + bits // 8 // 20)]
        command = ["tc", "-n", namespace, "qdisc", "replace", "dev", device, "root"]
        subprocess.run([*command, "handle", "10:", "tbf", *bucket], check=True)


def main() -> None:
    """Print the timeline; with a question of `play`, answer it as JSON."""
    argument = sys.argv[1] if len(sys.argv) > 1 else "2"
    if argument.startswith("["):
        name, counts, minutes = json.loads(argument)
        print(json.dumps(asdict(_act(name, Path(counts), minutes))))
    else:
        print(play("links", float(argument)).show())


if __name__ == "__main__":
    main()
