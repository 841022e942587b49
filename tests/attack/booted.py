"""Both daemons on booted machines, under systemd with their own limits, and what attacks them.

The controller is attacked from the board, which has the standard library and a certificate that
the controller's authority signed; honest clients ask from elsewhere. Each attack meets a unit
that was just started, so that its peak of memory is that attack's. `units.py` says who enforces
the limits.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leadline_controller.extender.server import Limits as ExtenderLimits

from tests.attack import booted_agent, booted_disk
from tests.attack.scene import (
    BOARD,
    CONTROLLER,
    EXTENDER_PORT,
    GRPC_PORT,
    MIB,
    READY_S,
    SETTINGS,
    Scene,
    booted,
    intrude,
    restarted,
    unharmed,
    within,
)
from tests.kube.objects import pod
from tests.rollout.machines import Machine
from tests.rollout.nspawn_testbed import REPOSITORY, SERVER
from tests.rollout.placing import place_pod
from tests.support.check import Check

LIST_NODES = "/leadline.v1.Inspection/ListNodes"
HEALTH_WATCH = "/grpc.health.v1.Health/Watch"
# A pod is created after a quarter of it, and waited for as long as it lasts.
HOLD_S = 40.0
# So long after an attack everybody must be served again: the command line waits as long.
AFTER_S = 10.0
NODE_BYTES = 13_000
HUGE_BYTES = 45_000_000


def attacked(
    scene: Scene,
    attack: str,
    asked: Mapping[str, object],
    origin: str = BOARD,
    services: Sequence[str] = ("grpc", "extender"),
) -> Generator[Check, None, dict[str, Any]]:
    """Attack the controller from a machine while honest clients ask and a pod waits; returns what
    the intruder found. services: those that must answer other machines; the port of gRPC is filled
    by one that has a certificate, or hundreds of connections, but not the socket."""
    unit = scene.controller
    with restarted(unit, scene.leadline("version")) as limits:
        unit.machine.wait_for(f"{scene.leadline('nodes')} | grep -w {BOARD}", READY_S)
        before = unit.mark()
        with ThreadPoolExecutor(1) as pool, asking(scene) as answers:
            begin_s = time.monotonic()
            intruder = pool.submit(intrude, scene.testbed.machines[origin], asked)
            time.sleep(HOLD_S / 4)
            placed = is_bound(scene.testbed.server, f"pod-{int(begin_s)}")
            found = intruder.result()
            end_s = time.monotonic()
            time.sleep(AFTER_S)
        shown = ", ".join(f"{found[name]} {name}" for name in ("opened", "kept") if name in found)
        clients = answers()
        for service in services:
            each = clients[service]
            during = [good for put_s, good in each if begin_s <= put_s < end_s]
            after = [good for put_s, good in each if put_s >= end_s]
            yield Check(
                attack,
                f"{service} answers honest clients: half of the calls at least, all afterwards",
                f"{sum(during)} of {len(during)} meanwhile, {sum(after)} of {len(after)} "
                f"afterwards" + (f" ({shown})" if shown else ""),
                sum(during) * 2 >= len(during) > 0 and all(after) and bool(after),
            )
        yield Check(
            attack, "a pod is place_pod meanwhile", "place_pod" if placed else "waits", placed
        )
        yield within(attack, limits)
        yield from unharmed(attack, unit, before)
    return found


@contextmanager
def asking(scene: Scene) -> Iterator[Callable[[], dict[str, list[tuple[float, bool]]]]]:
    """Honest clients at work during the block; afterwards what is yielded gives their answers."""
    asked = {
        **{"host": scene.testbed.server.address, **scene.keys, "nodes": [SERVER, BOARD]},
        **{"grpc_port": GRPC_PORT, "extender_port": EXTENDER_PORT},
    }
    module = [sys.executable, "-m", "tests.attack.honest", json.dumps(asked)]
    with subprocess.Popen(
        scene.testbed.namespaces.command(*module),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        text=True,
    ) as process:
        output: list[str] = []
        try:
            yield lambda: json.loads(output[0])
            output.append(process.communicate("", timeout=120)[0])
        finally:
            process.kill()


def is_bound(server: Machine, name: str) -> bool:
    """Whether a new pod gets its node in time."""
    try:
        place_pod(server, pod(name, "10m"))
    except AssertionError:
        return False
    return True


def silent(scene: Scene, count: int) -> Iterator[Check]:
    """TCP connections to the gRPC port that never say a word."""
    asked = scene.at(GRPC_PORT, attack="silent", count=count, hold_s=HOLD_S)
    return attacked(scene, f"{count} silent connections to gRPC", asked, services=("extender",))


def unread(scene: Scene, count: int) -> Iterator[Check]:
    """Calls whose answers nobody takes."""
    asked = scene.at(GRPC_PORT, attack="calls", path=LIST_NODES, window=0, **calls(count))
    return attacked(scene, f"{count} unread calls", asked, services=("extender",))


def watches(scene: Scene, count: int) -> Iterator[Check]:
    """Streams of the health service."""
    asked = scene.at(GRPC_PORT, attack="calls", path=HEALTH_WATCH, window=65_535, **calls(count))
    return attacked(scene, f"{count} health watches", asked, services=("extender",))


def calls(count: int) -> dict[str, object]:
    """`count` calls, 20 on each connection."""
    return {"count": count, "per_connection": 20, "hold_s": HOLD_S}


def idle(scene: Scene, count: int) -> Iterator[Check]:
    """Connections to the extender that asked once."""
    asked = scene.at(EXTENDER_PORT, attack="idle", count=count, hold_s=HOLD_S)
    return attacked(scene, f"{count} idle connections to the extender", asked)


@contextmanager
def on_loopback(scene: Scene) -> Iterator[None]:
    """The extender where it is by default, on loopback and without TLS, which would take most of
    the time that a long question has."""
    server = scene.testbed.server
    server.run(f"cp -a {SETTINGS} {SETTINGS}.tls && sed -i '/^.extender.$/,$d' {SETTINGS}")
    server.run(f"printf '[extender]\\naddress = \"127.0.0.1:{EXTENDER_PORT}\"\\n' >> {SETTINGS}")
    try:
        yield
    finally:
        server.run(f"mv {SETTINGS}.tls {SETTINGS} && systemctl restart {CONTROLLER}", timeout_s=150)


def questioned(
    scene: Scene, attack: str, count: int, **asked: object
) -> Generator[Check, None, list[dict[str, Any]]]:
    """Long questions to the extender, from its own machine, and an ordinary one afterwards."""
    here = {"host": "127.0.0.1", "port": EXTENDER_PORT, "attack": "questions", "path": "/filter"}
    with on_loopback(scene):
        long = {**here, **asked, "count": count, "node_bytes": NODE_BYTES}
        found = yield from attacked(scene, attack, long, SERVER, ("grpc",))
        usual = {**here, "kind": "nodes", "node_bytes": NODE_BYTES, "count": 1, "bytes": 100_000}
        answer = intrude(scene.testbed.server, usual)["answers"][0]
        yield Check(
            attack,
            "the extender answers an ordinary question afterwards",
            f"{answer} (to the long ones {[each['error'] for each in found['answers']]})",
            answer["status"] == 200 and not answer["error"],
        )
    answers: list[dict[str, Any]] = found["answers"]
    return answers


def huge(scene: Scene, size_bytes: int) -> Iterator[Check]:
    """One question of many small objects."""
    attack = f"a question of {size_bytes / 1e6:.0f} MB of empty objects"
    yield from questioned(scene, attack, 1, kind="objects", bytes=size_bytes)


def largest(scene: Scene) -> Iterator[Check]:
    """As many questions at once as the manual allows, of the largest size that it promises."""
    limits = ExtenderLimits()
    count, size_bytes = limits.large_at_once, limits.body_bytes
    attack = f"{count} honest questions of {size_bytes / MIB:.0f} MiB"
    answers = yield from questioned(scene, attack, count, kind="nodes", bytes=size_bytes)
    full = sum(
        each["status"] == 200 and each.get("passed") == each.get("asked") for each in answers
    )
    late = sum(each["status"] == 200 and "not answered within" in each["error"] for each in answers)
    yield Check(
        attack,
        "each is answered with all its nodes, or told that it took too long",
        f"{full} in full, {late} told so, {[each['error'] for each in answers]}",
        full + late == count,
    )


def main() -> Iterator[Check]:
    """Every attack in full length; takes about a quarter of an hour."""
    with (
        tempfile.TemporaryDirectory(prefix="leadline-attack-") as folder,
        booted(Path(folder)) as scene,
    ):
        yield from silent(scene, 1040)
        yield from unread(scene, 160)
        yield from watches(scene, 300)
        yield from idle(scene, 64)
        yield from huge(scene, HUGE_BYTES)
        yield from largest(scene)
        yield from booted_disk.rotten(scene)
        yield from booted_agent.overdrawn(scene)
        yield from booted_agent.endless_number(scene)
