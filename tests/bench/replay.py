"""How long a replay takes, processor time of one core: a day of 20 boards and 2,000 pods, and a
quarter of an hour of 1,000 boards with 100,000 pods a day.

python -m tests.bench replay
"""

from __future__ import annotations

from random import Random
from time import process_time

from leadline_controller.framework.model import Layer, PodAnnotations
from leadline_controller.history.recorded import Entry
from leadline_lab.replay.past import Past
from leadline_lab.replay.replaying import replay

from tests.lab.replay.small import Recording, board, web

STRATEGIES = ("kube-scheduler", "kube-default", "netsched", "dacs", "infrastructure-aware")
DAY_S, REPORT_S, PING_S, PULL_S = 86_400, 10, 60, 10.0


def day(boards: int = 20, pods: int = 2000, seed: int = 0, length_s: float = DAY_S) -> list[Entry]:
    """A recorded day: boards report every 10 s and ping five peers each minute; pods of 20
    workloads come, start, and run for an hour on average. Round trips are those of places on a
    map, 20 ms wide, with a noise of 5 %."""
    random = Random(seed)
    names = [f"n{number:02}" for number in range(boards)]
    recording = Recording([board(name) for name in names], "random")
    for each in range(20):
        recording.layers(f"app-{each}:1", Layer("base", 30.0), Layer(f"app-{each}", 20.0))
    told = []
    held = set[tuple[str, str]]()
    for number in range(pods):
        app, node = f"app-{number % 20}", random.choice(names)
        notes = PodAnnotations(user_node=random.choice(names), data_mb=random.uniform(1, 20))
        pod = web(f"p{number}", 200, app, images=(f"{app}:1",), annotations=notes)
        at_s = random.uniform(REPORT_S, length_s * 0.95)
        ready_s = at_s + random.uniform(1, 4)
        if (node, app) not in held:
            held.add((node, app))
            recording.pull(at_s + 0.1 + PULL_S, node, pod, PULL_S, 50.0)
            ready_s += PULL_S + 0.1
        ended_s = ready_s + random.expovariate(1 / 3600)
        life = recording.life(pod, node, at_s, ready_s, ended_s)
        told += [told_s for told_s in life if told_s[0] < length_s]
    recording.put_in_order(told)
    places = [complex(random.uniform(0, 20), random.uniform(0, 20)) for _ in names]
    for number, name in enumerate(names):
        for turn in range(int(length_s / REPORT_S)):
            at_s = turn * REPORT_S + number * REPORT_S / boards
            values = dict.fromkeys(("packets_sent_per_s", "packets_received_per_s"), 20.0)
            recording.report(at_s, name, random.gauss(30, 3), **values)
        for turn in range(int(length_s / PING_S)):
            others = [(number + turn + step) % boards for step in range(1, 6)]
            peers = {
                names[each]: (1.0 + abs(places[each] - places[number])) * random.gauss(1.0, 0.05)
                for each in others
            }
            recording.ping(turn * PING_S + number % PING_S, name, peers)
    return recording.end(length_s, names[0])


def main() -> None:
    """Print the times."""
    measure("a day of 20 boards", day())
    quarter_s = DAY_S / 96
    measure("15 minutes of 1,000 boards", day(1000, 100_000 // 96, length_s=quarter_s))


def measure(what: str, entries: list[Entry]) -> None:
    """Print how long it takes to read these, and to replay them under each strategy."""
    begin_s = process_time()
    past = Past.of(entries)
    print(f"{what}: {len(entries)} entries, read once: {process_time() - begin_s:.1f} s")
    for strategy in STRATEGIES:
        begin_s = process_time()
        found = replay(past, strategy, 0)
        placed = sum(pod.node is not None for pod in found.pods)
        print(f"{strategy:24}{process_time() - begin_s:6.1f} s, {placed} pods placed")
