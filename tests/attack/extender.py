"""Attacks on the scheduler extender: on a controller under its unit's limit of memory, beside a
real kube-scheduler that must get its answers meanwhile."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import psutil

from tests.attack.extender_client import Address, Connection
from tests.attack.extender_mutations import expected_nodes, mutated
from tests.attack.extender_questions import SMALL_VALUES, of_labels, of_small_values, whole_question
from tests.controller.extender.harness import args, pod_manifest, wide
from tests.kube.api import Api, ApiError
from tests.kube.control_plane import ControlPlane, control_plane
from tests.kube.extending import Extending, extending
from tests.kube.objects import Object, namespace, node, pod
from tests.support.check import Check
from tests.support.memory import controller_limit_bytes, limited_memory, peak_bytes

BANDWIDTH = "leadline.dev/bandwidth-mbps"
MBPS: Mapping[str, float] = {"n1": 10.0, "n2": 100.0, "n3": 1000.0}
NAMES = list(MBPS)
MIB = 1 << 20
MEMORY_MAX = controller_limit_bytes("MemoryMax")
MEMORY_HIGH = controller_limit_bytes("MemoryHigh")
REFUSALS = ("nodeCacheCapable: true", "longer than any object in Kubernetes")
KINDS = ("silent", "in the head", "in the body", "idle")
_OPENINGS: Mapping[str, bytes] = {
    "silent": b"",
    "in the head": b"POST /filter HTTP/1.1\r\nHost: x\r\nCont",
    "in the body": b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 3000\r\n\r\n{",
    "idle": b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
}


@asynccontextmanager
async def crowd(address: Address, count: int, kind: str) -> AsyncIterator[None]:
    """Hold that many connections for as long as the context lasts; each that is closed comes
    again."""

    async def hold() -> None:
        while True:
            with suppress(OSError, EOFError):
                connection = await address.touch()
                try:
                    connection.writer.write(_OPENINGS[kind])
                    while await connection.reader.read(1000):
                        pass
                finally:
                    connection.close()
            await asyncio.sleep(0.05)

    holding = [asyncio.create_task(hold()) for _ in range(count)]
    await asyncio.sleep(min(1.0, 0.1 + count / 1000))
    try:
        yield
    finally:
        for task in holding:
            task.cancel()
        await asyncio.gather(*holding, return_exceptions=True)


async def passing(address: Address, question: bytes) -> set[str] | None:
    """The nodes that the extender lets pass, asked over a connection of its own; None where it
    does not answer. Asks again once, as kube-scheduler soon does."""
    for _ in range(2):
        with suppress(OSError, EOFError, TimeoutError):
            _, answer = await address.ask("/filter", question)
            return names_of(json.loads(answer))
    return None


def names_of(answer: Mapping[str, object]) -> set[str]:
    """The nodes of a filter's answer."""
    nodes = answer.get("Nodes")
    if isinstance(nodes, dict):
        return {each["metadata"]["name"] for each in nodes["items"]}
    named = answer.get("NodeNames")
    return set(named) if isinstance(named, list) else set()


async def mutations(address: Address, count: int, seed: int = 7, at_once: int = 1) -> list[str]:
    """Ask that many spoiled questions, over `at_once` connections. Returns what was wrong with the
    answers."""
    # A pod that needs bandwidth and that the watch does not show waits a second for it.
    each = -(-count // at_once)
    found = await asyncio.gather(
        *(_mutations(address, each, 1000 * seed + number) for number in range(at_once))
    )
    return [fault for faults in found for fault in faults]


async def _mutations(address: Address, count: int, seed: int) -> list[str]:
    random, wrong = Random(seed), []
    small = [wide(name, mbps) for name, mbps in MBPS.items()]
    bodies = [
        args(pod_manifest("web", 50), NAMES),
        args(pod_manifest("web", 50, data_mb="3"), nodes=small),
    ]
    binding = {"PodName": "web", "PodNamespace": "default", "PodUID": "uid-web", "Node": "n1"}
    connection: Connection | None = None
    for number in range(count):
        verb = random.choice(("filter", "filter", "prioritize", "bind"))
        bases = [json.dumps(binding).encode()] if verb == "bind" else bodies
        body = mutated(bases, random)
        try:
            connection = connection or await address.connect()
            status, answer = await connection.post(f"/{verb}", body)
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            connection = None
            wrong.append(f"{number}: no answer: {error!r}: {body[:80]!r}")
            continue
        if verb == "filter" and (fault := _fault(status, answer, body)):
            wrong.append(f"{number}: {fault}: {body[:200]!r}")
    if connection is not None:
        connection.close()
    return wrong


def _fault(status: int, answer: bytes, body: bytes) -> str | None:
    """What is wrong with the answer to a filter question."""
    parsed = json.loads(answer)
    if status != 200:
        return f"status {status}"
    if parsed["Error"]:
        return "internal error" if "internal error" in parsed["Error"] else None
    right = expected_nodes(body, MBPS)
    found = names_of(parsed)
    if right is None:
        return None
    # A node that can't be read for another reason is refused, and the answer says so.
    reasons = parsed["FailedAndUnresolvableNodes"]
    unreadable = {
        name for name in right - found if reasons.get(name, "").startswith("Nodes.items[")
    }
    return None if found == right - unreadable else f"{found} pass, not {right}: {reasons}"


async def all_at_once(address: Address, question: bytes, count: int) -> list[str]:
    """Ask it over that many connections at once. Returns the errors, empty for an answer."""

    async def ask() -> str:
        try:
            _, answer = await address.ask("/filter", question)
        except (OSError, EOFError, TimeoutError) as error:
            return f"no answer: {error!r}"
        return str(json.loads(answer)["Error"])

    return await asyncio.gather(*(ask() for _ in range(count)))


async def abandon(address: Address, question: bytes) -> None:
    """Ask, and hang up when all of it is sent."""
    connection = await address.connect()
    head = f"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: {len(question)}\r\n\r\n"
    connection.writer.write(head.encode() + question)
    with suppress(ConnectionError):
        await connection.writer.drain()
    connection.close()


async def slowest_answer_s(address: Address, beside: asyncio.Task[object]) -> float:
    """How long a small question waits at most while that is done."""
    slowest_s, question = 0.0, args(pod_manifest("beside"), NAMES)
    connection = await address.connect()
    while not beside.done():
        start_s = time.perf_counter()
        await connection.post("/filter", question)
        slowest_s = max(slowest_s, time.perf_counter() - start_s)
    connection.close()
    return slowest_s


def processor_s(pid: int) -> float:
    """What a process has computed so far."""
    return sum(psutil.Process(pid).cpu_times()[:2])


PODS = "/api/v1/namespaces/attack/pods"


def add_pod(api: Api, name: str, scheduler: str = "default-scheduler", cpu: str = "1m") -> Object:
    """A pod that waits for that scheduler."""
    made: Object = api.create(PODS, pod(name, cpu=cpu, scheduler=scheduler))
    return made


def bound_within(api: Api, names: Sequence[str], timeout_s: float) -> int:
    """How many of the pods are on a node then."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        on_nodes = sum("nodeName" in api.get(f"{PODS}/{name}")["spec"] for name in names)
        if on_nodes == len(names) or time.monotonic() > deadline_s:
            return on_nodes
        time.sleep(0.2)


async def strange_bindings(
    address: Address, api: Api, certificate: str
) -> list[tuple[str, str | None]]:
    """Have pods bound that nobody asked about. Returns what was tried and where the pod went."""
    tried = []
    for what, scheduler, cpu in (
        ("a foreign scheduler's pod on a tainted node", "somebody-else", "1m"),
        ("1,000 CPUs on a board", "default-scheduler", "1000"),
    ):
        name = f"strange-{certificate}-{cpu}"
        uid = add_pod(api, name, scheduler, cpu)["metadata"]["uid"]
        binding = {"PodName": name, "PodNamespace": "attack", "PodUID": uid, "Node": "tainted"}
        with suppress(OSError, EOFError):
            await address.ask("/bind", json.dumps(binding).encode())
        tried.append((what, api.get(f"{PODS}/{name}")["spec"].get("nodeName")))
        api.delete(f"{PODS}/{name}")
    return tried


@contextmanager
def scene() -> Iterator[tuple[ControlPlane, Path]]:
    """An API server with three boards and a tainted one, and a folder."""
    with control_plane() as plane, TemporaryDirectory(prefix="leadline-attack-") as folder:
        api = Api(plane.kubeconfig)
        with suppress(ApiError):
            api.create("/api/v1/namespaces", namespace("attack"))
        for name, mbps in MBPS.items():
            api.add_node(node(name, labels={BANDWIDTH: f"{mbps:g}"}))
        taint = {"key": "for", "value": "nobody", "effect": "NoSchedule"}
        api.add_node(node("tainted", taints=[taint]))
        yield plane, Path(folder)


def main() -> Iterable[Check]:
    """Every attack in full length."""
    with scene() as (plane, folder):
        for name, tls in (("plain", False), ("tls", True)):
            (folder / name).mkdir()
            with extending(plane, folder / name, tls=tls) as running:
                running.controller.stop()
                with limited_memory(MEMORY_MAX):
                    running.controller.start()
                running.controller.wait_said("answering kube-scheduler", 2)
                asyncio.run(_wait_ready(Address.of(running.address, _context(running))))
                yield from _attacks(running, Api(plane.kubeconfig), tls)


async def _prioritize_many(address: Address, pid: int, way: str) -> Check:
    """Prioritize nodes of nothing but labels for one pod after the other: each is a decision."""
    question, before = of_labels(31 * MIB), peak_bytes(pid)
    answered = 0
    for number in range(12):
        pod = b'"name": "labels-%d"' % number
        code, _ = await address.ask("/prioritize", question.replace(b'"name": "labels"', pod))
        answered += code == 200
    peak = peak_bytes(pid) if _is_alive(pid) else 0
    return Check(
        f"12 pods over labels of 31 MiB, one after the other {way}",
        "under 768 MiB",
        f"peak {peak / MIB:.0f} MiB (before {before / MIB:.0f}), {answered} answered",
        0 < peak < MEMORY_HIGH,
    )


def _attacks(running: Extending, api: Api, tls: bool) -> Iterator[Check]:
    pid = running.controller.pid
    assert pid is not None
    address = Address.of(running.address, _context(running))
    way = "with TLS" if tls else "without TLS"

    for what, where in asyncio.run(strange_bindings(address, api, "tls" if tls else "plain")):
        yield Check(f"/bind {way}: {what}", "not bound", str(where), where is None)

    for number, kind in enumerate(KINDS):
        names = [f"honest-{'tls' if tls else 'plain'}-{number}-{i}" for i in range(5)]
        on_nodes, took_s = asyncio.run(_beside_a_crowd(running, address, api, kind, names))
        yield Check(
            f"1,100 connections {way}, {kind}",
            "a kube-scheduler that is started meanwhile places 5 pods",
            f"{on_nodes} placed, {took_s:.1f} s after its start",
            on_nodes == len(names),
        )

    before = peak_bytes(pid)
    for what, question in (
        ("5,000 boards sent whole", whole_question(5000)),
        ("labels of 31 MiB", of_labels(31 * MIB)),
        ("a pod of lists, 31 MiB", of_small_values("lists in lists", 31 * MIB)),
        ("a pod of lists, 45 MB", of_small_values("lists in lists", 45_000_000)),
        ("116 MB of boards", whole_question(10_400, 50)),
    ):
        for count in (1, 2, 8):
            errors = asyncio.run(all_at_once(address, question, count))
            for _ in range(9 if (count, what[0]) == (1, "5") else 0):
                # A busy machine may take longer than kube-scheduler waits: so it asks again.
                if errors != [""]:
                    errors = asyncio.run(all_at_once(address, question, count))
            shown = next(iter(sorted({error[:150] for error in errors}, reverse=True)), "")
            here = _is_alive(pid)
            peak = peak_bytes(pid) if here else 0
            right = (
                not any(errors)
                if (count, what[0]) == (1, "5")
                else all(not error or any(r in error for r in REFUSALS) for error in errors)
            )
            yield Check(
                f"{count} x {what} ({len(question) / 1e6:.0f} MB) {way}",
                "answered, or refused with a reason; under 768 MiB",
                f"peak {peak / MIB:.0f} MiB (before {before / MIB:.0f}), "
                f"{errors.count('')} answered, {shown!r}",
                here and peak < MEMORY_HIGH and right,
            )
            if not here:
                return

    yield asyncio.run(_prioritize_many(address, pid, way))

    question = of_small_values("empty lists", 30_000_000)
    asyncio.run(abandon(address, question))
    time.sleep(0.5)
    used_s = processor_s(pid)
    time.sleep(4.0)
    used_s = processor_s(pid) - used_s
    yield Check(
        f"30 MB of empty lists, abandoned {way}",
        "nothing is computed for it any more",
        f"{used_s:.1f} s of the 4 s after",
        used_s < 1.0,
    )

    for kind in SMALL_VALUES:
        short_s, long_s, slowest_s = asyncio.run(_growth(address, pid, kind))
        yield Check(
            f"1 and 2 MB of {kind} {way}",
            "2 s of computing at most, in proportion; others wait less than 1.5 s",
            f"{short_s:.2f} and {long_s:.2f} s of computing, others waited {slowest_s:.2f} s",
            long_s < min(2.0, 3 * short_s + 0.3) and slowest_s < 1.5,
        )

    resident = _resident_bytes(pid)
    asyncio.run(mutations(address, 2000, seed=1, at_once=32))
    resident = _resident_bytes(pid)
    lines, start_s = len(running.controller.lines()), time.monotonic()
    wrong = asyncio.run(mutations(address, 20_000, at_once=32))
    grown = _resident_bytes(pid) - resident
    yield Check(
        f"20,000 mutated requests {way}",
        "right answers, 32 MiB more memory at most",
        f"{len(wrong)} wrong {wrong[:2]}, {grown / MIB:.0f} MiB more",
        not wrong and grown < 32 * MIB,
    )
    lines = len(running.controller.lines()) - lines
    minutes = int(time.monotonic() - start_s) // 60 + 1
    traces = running.controller.said("Traceback")
    yield Check(
        f"the log of that {way}",
        "no traceback, 20 lines a minute",
        f"{traces} tracebacks, {lines} lines",
        not traces and lines <= 20 * (minutes + 1),
    )


async def _beside_a_crowd(
    running: Extending, address: Address, api: Api, kind: str, names: Sequence[str]
) -> tuple[int, float]:
    def place() -> int:
        with running.scheduler("--no-ignorable"):
            for name in names:
                add_pod(api, name)
            return bound_within(api, names, 45.0)

    async with crowd(address, 1100, kind):
        start_s = time.monotonic()
        return await asyncio.to_thread(place), time.monotonic() - start_s


async def _growth(address: Address, pid: int, kind: str) -> tuple[float, float, float]:
    """What the controller computes for 1 and for 2 MB, and how long others wait beside."""
    computed_s = []
    for size in (1_000_000, 2_000_000):
        before_s = processor_s(pid)
        await all_at_once(address, of_small_values(kind, size), 1)
        computed_s.append(processor_s(pid) - before_s)
    asking = asyncio.create_task(all_at_once(address, of_small_values(kind, 2_000_000), 1))
    slowest_s = await slowest_answer_s(address, asking)
    await asking
    return computed_s[0], computed_s[1], slowest_s


def _is_alive(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def _resident_bytes(pid: int) -> int:
    return int(psutil.Process(pid).memory_info().rss)


async def _wait_ready(address: Address) -> None:
    async with asyncio.timeout(30.0):
        while True:
            connection = await address.connect()
            status, _ = await connection.get("/healthz")
            connection.close()
            if status == 200:
                return
            await asyncio.sleep(0.1)


def _context(running: Extending) -> ssl.SSLContext | None:
    return None if running.caller is None else running.caller.context()
