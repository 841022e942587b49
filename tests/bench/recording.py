"""What a recording costs: a day of 20 boards and 2,000 pods, written as fast as it goes.

The boards report each ten seconds and ping eight others, with noise wherever a board has some. Each
pod is seen ten times from its creation to its end, and the kubelets write their nodes each five
minutes and change nothing. Everything goes through the queue and the ring, as in a controller.
"""

import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import replace
from heapq import merge
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from leadline_controller.framework.model import Node, Owner, Pod, PodAnnotations, Toleration
from leadline_controller.framework.ports import (
    ImagePull,
    NodeChanged,
    PodChanged,
    PodDeleted,
    Relisted,
)
from leadline_controller.history.recorded import Began, Changed, Decided, Entry, Pulled, Used
from leadline_controller.history.recording import Recording
from leadline_controller.history.recording_files import read_recording, recordings
from leadline_controller.history.recording_ring import RecordingSettings
from leadline_controller.telemetry.accepted import Agent, Born, Pinged, Reported, Tested
from leadline_controller.telemetry.bandwidth_tests import BandwidthTest
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.paths import PingRound
from leadline_controller.telemetry.sequence import Stamp
from leadline_controller.telemetry.state import TimesToLive

BOARDS, PODS, DAY_S, BEGIN_S = 20, 2000, 86_400.0, 345_678.9
MOST_MB, MOST_CPU_S = 20.0, 864.0  # issue: a day, and 1 % of a core
BEGAN = Began(1.7e9, "0.3.0", "home", "dacs", {"alpha": "0.5"}, 7)
_TERMS = dict.fromkeys(("cpu", "memory", "disk", "network", "temperature"), True)


def day(boards: int = BOARDS, pods: int = PODS, seed: int = 1) -> Iterator[Entry]:
    """A day without Began, in the order of time."""
    names = [f"raspberrypi-{at}" for at in range(boards)]
    nodes = tuple(
        Node(
            name,
            {"cpu": 4000, "memory": 4 << 30, "pods": 110, "ephemeral-storage": 30 << 30},
            {"kubernetes.io/hostname": name, "kubernetes.io/arch": "arm64"},
            addresses=(f"192.168.1.{at}",),
        )
        for at, name in enumerate(names)
    )
    # Seeds that differ, so that each part stays as it is when another one changes.
    parts = [_board(names, at, Random(seed * 1000 + at)) for at in range(boards)]
    parts += [
        _pods(names, pods, Random(seed)),
        _tests(names, Random(seed + 1)),
        _beats(nodes),
        _usage(Random(seed + 2)),
    ]
    yield Entry(BEGIN_S, Changed(Relisted(nodes, ())))
    yield from merge(*parts, key=lambda entry: entry.at_s)


def _single(value: float) -> float:
    """As the wire has it."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _board(names: list[str], at: int, random: Random) -> Iterator[Entry]:
    name, boot = names[at], random.randbytes(16)
    peers = [names[(at + each) % len(names)] for each in range(1, 9)]
    base_ms = [random.uniform(0.2, 3.0) for _ in peers]
    offset_s, sequence = random.uniform(0, 10), 1

    def stamp(at_s: float) -> Stamp:
        nonlocal sequence
        sequence += 1
        boot_ms = int((at_s - BEGIN_S) * 1000) + 5_000_000
        return Stamp(boot, 3, sequence, boot_ms, at_s - random.uniform(0.002, 0.02))

    agent = Agent(name, True, "0.3.0", "Raspberry Pi 4 Model B Rev 1.4", cores=4, interval_s=10)
    yield Entry(BEGIN_S + offset_s, Born(agent, stamp(BEGIN_S + offset_s)))
    cpu = 10.0
    for turn in range(int(DAY_S / 10)):
        at_s = BEGIN_S + offset_s + 10 * turn + random.uniform(0, 0.05)
        cpu = min(95.0, max(2.0, cpu + random.gauss(0, 2)))
        over_s = 10 + random.gauss(0, 0.002)  # between two readings of the counters
        sent, received, moved, used = (random.randrange(n) for n in (900, 1200, 400, 900_000))
        values = {
            "cpu_percent": _single(100 * int(cpu * 40) / int(400 * over_s)),
            "load_1m": _single(round(cpu / 25, 2)),
            "frequency_mhz": random.choice((600.0, 1500.0)),
            "memory_percent": 100.0 * (1 - (4096 * random.randrange(500_000, 520_000)) / 3.9e9),
            "disk_bytes_per_s": _single(4096 * moved / over_s) + _single(512 * moved / over_s),
            "packets_sent_per_s": _single(sent / over_s),
            "packets_received_per_s": _single(received / over_s),
            "link_mbps": 1000.0,
            "used_mbps": _single(used / over_s) * 8e-6,
            "cpu_celsius": _single(48.0 + round(random.gauss(0, 2) / 0.487) * 0.487),
        }
        flags = {"under_voltage": False, "throttled": False}
        reading = BoardReading(values, [], flags, {**_TERMS})
        yield Entry(at_s, Reported(name, stamp(at_s), reading))
        rounds = {
            peer: PingRound(_single(ms + random.expovariate(20)), 2, 2)
            for peer, ms in zip(peers, base_ms, strict=True)
        }
        at_s += random.uniform(0.1, 0.3)
        yield Entry(at_s, Pinged(name, stamp(at_s), rounds))


def _pods(names: list[str], count: int, random: Random) -> Iterator[Entry]:
    tolerations = tuple(
        Toleration(f"node.kubernetes.io/{what}", "Exists", "", "NoExecute")
        for what in ("not-ready", "unreachable")
    )

    def life(at: int) -> Iterator[Entry]:
        app, node = f"app-{at % 30}", random.choice(names)
        uid = f"{random.getrandbits(128):032x}"
        created_s = BEGIN_S + DAY_S * at / count
        image = f"registry.example.com/{app}:1.2"
        pod = Pod(
            "default",
            f"{app}-7c9d8b6f5-{random.getrandbits(25):05x}",
            uid,
            requests={"cpu": 100, "memory": 128 << 20, "pods": 1},
            limits={"memory": 256 << 20},
            tolerations=tolerations,
            images=(image,),
            awaited_images=(image,),
            annotations=PodAnnotations(user_node=names[at % len(names)], data_mb=5.0),
            labels={"app": app, "pod-template-hash": "7c9d8b6f5"},
            owner=Owner("ReplicaSet", f"{app}-7c9d8b6f5", f"{at % 30:032x}", "apps/v1"),
            created_s=float(int(created_s)),
        )
        bound = replace(pod, node_name=node, bound_s=pod.created_s)
        taken = replace(bound, started_s=pod.created_s)
        digest = f"{image}@sha256:{at % 30:064x}"
        started = replace(taken, awaited_images=(), started_images=((image, digest),))
        running = replace(started, ips=(f"10.42.{at % 20}.{at % 250}",), runs_s=created_s + 5)
        ready = replace(running, ready=True)
        ending = replace(ready, terminating=True)
        ended = replace(ending, ready=False, finished=True, ended_s=created_s + 600)
        seen = (pod, pod, bound, taken, taken, running, ready, ending, ended, ended)
        times_s = (0, 0.01, 0.05, 0.5, 1, 5, 6, 600, 603, 603.1)
        for after_s, each in zip(times_s, seen, strict=True):
            yield Entry(created_s + after_s, Changed(PodChanged(each)))
            if after_s == 0:
                yield Entry(created_s + 0.005, Decided(uid, pod.key, node))
            if after_s == 1:
                yield Entry(created_s + 1.5, Pulled(ImagePull(node, uid, image)))
                yield Entry(created_s + 4.5, Pulled(ImagePull(node, uid, image, 3.1, 51.7)))
        yield Entry(created_s + 604, Changed(PodDeleted(ended)))

    return merge(*map(life, range(count)), key=lambda entry: entry.at_s)


def _tests(names: list[str], random: Random) -> Iterator[Entry]:
    step_s = 600 / len(names)
    for turn in range(int(DAY_S / step_s)):
        client, server = random.sample(names, 2)
        at_s = BEGIN_S + turn * step_s
        test = BandwidthTest(client, server, _single(random.gauss(93, 1)), 0.05, at_s)
        yield Entry(at_s, Tested(test))


def _beats(nodes: tuple[Node, ...]) -> Iterator[Entry]:
    for turn in range(int(DAY_S / 300)):
        yield from (Entry(BEGIN_S + 300 * turn, Changed(NodeChanged(each))) for each in nodes)


def _usage(random: Random) -> Iterator[Entry]:
    for turn in range(int(DAY_S / 60)):
        usage = {
            ("default", frozenset({("app", f"app-{each}")})): (
                random.randrange(10**6, 10**8) / 1e9,
                4096.0 * random.randrange(5000, 6000),
            )
            for each in range(30)
        }
        yield Entry(BEGIN_S + 60 * turn, Used(usage))


def main() -> None:
    """One table."""
    entries = list(day())
    with TemporaryDirectory() as folder:
        clock = {"s": BEGIN_S}
        recording = Recording(
            RecordingSettings(True, Path(folder)),
            now_s=lambda: clock["s"],
            leads=lambda: True,
            began=lambda _: BEGAN,
            profiled=lambda pod: pod,
            shown=lambda: Relisted((), ()),
            ttl=TimesToLive(),
        )
        tap_s = thread_s = 0.0
        left = iter(entries)
        while turn := list(islice(left, 64)):
            clock["s"] = turn[-1].at_s
            begun_s = time.process_time()
            for entry in turn:
                recording.put(entry.what, entry.at_s)
            middle_s = time.process_time()
            recording._write(clock["s"])
            tap_s += middle_s - begun_s
            thread_s += time.process_time() - middle_s
        recording._ring.end(clock["s"])
        size = sum(each.stat().st_size for each in recordings(Path(folder)))
        begun_s = time.process_time()
        read = sum(1 for _ in read_recording(Path(folder)))
        read_s = time.process_time() - begun_s
        level = zlib.Z_DEFAULT_COMPRESSION
    print(f"{BOARDS} boards, {PODS:,} pods, {len(entries):,} entries, {read:,} kept; zlib {level}")
    for what, value, most, unit in (
        ("size of a day", size / 1e6, MOST_MB, "MB"),
        ("thread, CPU of a day", thread_s, MOST_CPU_S, "s"),
        ("those that tell it, CPU of a day", tap_s, MOST_CPU_S, "s"),
    ):
        print(f"  {what:<40}{value:>8.1f} {unit:<3} of {most:g}")
    print(f"  {'reading a day, CPU':<40}{read_s:>8.1f} s")


if __name__ == "__main__":
    main()
