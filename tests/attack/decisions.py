"""Damaged files of decisions, thousands of pods that wait for nodes, and invalid texts."""

import asyncio
import gc
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from leadline_controller.extender.protocol import ProtocolError, read_extender_args
from leadline_controller.framework.cycle import Decision
from leadline_controller.framework.model import Pod
from leadline_controller.history.log import PENDING, DecisionLog
from leadline_controller.history.recorder import Recorder
from leadline_controller.history.store import HistorySettings
from leadline_controller.inspect.placements import placement
from leadline_controller.kube.convert import Converter
from leadline_controller.kubeobjects.manifest import read_pod
from leadline_controller.parsing.fields import FieldError

from tests.attack import damage
from tests.attack.joining import decisions_over
from tests.support.check import Check
from tests.support.ports import free_port
from tests.system.daemons import Daemon, eventually

REPOSITORY = Path(__file__).parents[2]
HALF = "\ud800"
GROWN_MIB = 160.0
_START_S = 15.0


def main() -> Iterable[Check]:
    """All of it in full length: every used bit of the first page, 20,000 pending pods."""
    whole = damage.sound_file()
    yield damaged("single bits of page 1", damage.flips(whole, every=1))
    yield damaged("single bits of the other pages", damage.page_flips(whole, 2000))
    yield damaged("statements", damage.statements())
    yield damaged("files", damage.files(whole))
    yield from daemons(damage.flips(whole, every=600))
    yield from daemons(damage.statements())
    yield signalled(30)
    yield from joined(pods=20_000, nodes=60, every_s=1.5, disk_s=0.0)
    yield from joined(pods=20_000, nodes=60, every_s=1.5, disk_s=3.0)
    for nodes in (10, 100):
        yield unwritten(20_000, nodes)
    yield from half_characters(90)


def damaged(what: str, cases: Iterable[damage.Case]) -> Check:
    """Start the history with each of these files."""
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    for case, outcome in damage.starts(cases):
        outcomes[outcome] += 1
        if outcome not in case.expected:
            wrong.append(f"{case.name}: {outcome}")
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common(6))
    worst = f"; wrong: {len(wrong)}, as {wrong[:3]}" if wrong else ""
    return Check(
        f"{outcomes.total()} starts with damaged files ({what})",
        "each starts, notes a decision and stops; a damaged file is put aside",
        counts + worst,
        not wrong and outcomes.total() > 0,
    )


def daemons(cases: Iterable[damage.Case]) -> Iterator[Check]:
    """The daemon itself, with no API server or broker: it must answer, and end on SIGTERM."""
    codes: Counter[str] = Counter()
    longest_s, wrong = 0.0, []
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="leadline-daemon-") as name:
            daemon, log = _daemon(Path(name))
            case.make(Path(name) / "controller.state" / "decisions.db")
            daemon.start()
            try:
                eventually(log.read_text, lambda text: "answering inspections" in text, case.name)
            except AssertionError:
                wrong.append(f"{case.name}: does not start")
            began_s = time.monotonic()
            code = _stopped(daemon)
            longest_s = max(longest_s, time.monotonic() - began_s)
            codes[f"exit code {code}"] += 1
            if code != 0 or "Traceback" in log.read_text():
                wrong.append(f"{case.name}: {code}")
    yield Check(
        f"{codes.total()} daemons started with damaged files, then SIGTERM",
        "each answers, and ends with exit code 0",
        f"{dict(codes)}, {longest_s:.1f} s at most{'; wrong: ' if wrong else ''}{wrong[:3] or ''}",
        not wrong and codes.total() > 0,
    )


def signalled(count: int) -> Check:
    """SIGTERM at `count` moments of the start, while another program holds the file's lock."""
    codes: Counter[int | None] = Counter()
    longest_s = 0.0
    for number in range(count):
        with tempfile.TemporaryDirectory(prefix="leadline-daemon-") as name:
            daemon, _ = _daemon(Path(name))
            with _locked(Path(name) / "controller.state" / "decisions.db"):
                daemon.start()
                time.sleep(0.1 + _START_S * number / count)
                began_s = time.monotonic()
                codes[_stopped(daemon)] += 1
                longest_s = max(longest_s, time.monotonic() - began_s)
    # While Python still imports, the signal ends it as it ends any process.
    right = set(codes) <= {0, -signal.SIGTERM} and 0 in codes
    return Check(
        f"SIGTERM at {count} moments of the start, the file locked by another program",
        "ends within 20 s, by itself",
        f"exit codes {dict(codes)}, {longest_s:.1f} s at most",
        right,
    )


def _stopped(daemon: Daemon) -> int | None:
    """Its exit code after SIGTERM; None where it had to be killed."""
    try:
        return daemon.stop()
    except AssertionError:
        return None


def _daemon(folder: Path) -> tuple[Daemon, Path]:
    kubeconfig, config = folder / "kubeconfig", folder / "controller.toml"
    server = f"http://127.0.0.1:{free_port()}"
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {"token": "none"}}],
            }
        )
    )
    config.write_text(
        f"[broker]\nport = {free_port()}\n"
        f'[kubernetes]\nkubeconfig = "{kubeconfig}"\n'
        f'[grpc]\naddress = "127.0.0.1:{free_port()}"\n'
    )
    log = folder / "controller.log"
    return Daemon("leadline_controller", config, log), log


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Another program's lock on a sound file, for as long as the context lasts."""
    path.write_bytes(damage.sound_file())
    code = (
        "import sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('PRAGMA locking_mode = EXCLUSIVE')\n"
        "c.execute('BEGIN EXCLUSIVE')\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        yield
    finally:
        holder.communicate()


def joined(pods: int, nodes: int, every_s: float, disk_s: float) -> Iterator[Check]:
    """Pods that fit nowhere, and nodes that join one by one; see tests.attack.joining."""
    command = [sys.executable, "-m", "tests.attack.joining"]
    ended = subprocess.run(
        [*command, *map(str, (pods, nodes, every_s, disk_s))],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        check=True,
    )
    found = json.loads(ended.stdout)
    plain = _counted(found["warnings"], r"(\d+) decisions are kept without their scores")
    lost = found["decided"] - found["kept"]
    yield Check(
        f"{pods:,} pending pods, {nodes} nodes join, {disk_s:g} s for a transaction",
        f"no decision lost, at most {GROWN_MIB:g} MiB more",
        f"{found['decided']:,} decided, {lost:,} lost, {plain:,} kept without their scores, "
        f"{found['grown_mib']} MiB more, {found['per_s']} decisions a second; {found['warnings']}",
        lost == 0 and found["grown_mib"] <= GROWN_MIB and found["decided"] >= pods // 4,
    )


def unwritten(count: int, nodes: int) -> Check:
    """Decisions that nobody takes, as while a disk hangs: each holds its view of the nodes."""
    recorder = Recorder(HistorySettings(Path("/nonexistent/decisions.db")))
    log = DecisionLog(sink=recorder.put)
    before = _resident_mib()
    for made in decisions_over(count, nodes):
        log.add(made, 0.0, PENDING, {})
    grown_mib = _resident_mib() - before
    return Check(
        f"{count:,} decisions over {nodes} nodes wait for a disk that hangs",
        f"at most {GROWN_MIB:g} MiB more, {1024 * GROWN_MIB / count:.1f} kB each",
        f"{grown_mib:.0f} MiB more, {1024 * grown_mib / count:.1f} kB each",
        grown_mib <= GROWN_MIB,
    )


def _resident_mib() -> float:
    gc.collect()
    return float(psutil.Process().memory_info().rss) / 2**20


def _counted(lines: Iterable[str], pattern: str) -> int:
    return sum(int(found[1]) for line in lines if (found := re.search(pattern, line)))


def half_characters(count: int) -> Iterator[Check]:
    """A lone surrogate wherever a pod's manifest has text, and past the door all the same."""
    places = list(_manifests())
    refused = [name for name, manifest in places if _is_refused(manifest)]
    yield Check(
        f"half a character in {len(places)} places of a pod's manifest",
        "refused with the field's name in all but labels, which are read as valid text",
        f"refused: {', '.join(refused)}",
        refused == [name for name, _ in places if "label" not in name],
    )
    kept, watched = asyncio.run(_noted(count))
    yield Check(
        f"{count} decisions in one batch, one of them with half a character in every text",
        "all are kept, and all can be watched",
        f"{kept} kept, {watched} in the watch",
        kept == watched == count,
    )


def _manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    sound = {"name": "p", "namespace": "default", "uid": "u"}
    for name in sound:
        yield name, {"metadata": sound | {name: f"a{HALF}"}, "spec": {}}
    yield "a label", {"metadata": sound | {"labels": {"a": HALF}}, "spec": {}}
    yield "a label's name", {"metadata": sound | {"labels": {HALF: "a"}}, "spec": {}}
    yield "a control character", {"metadata": sound | {"uid": "a\x00b"}, "spec": {}}
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": f"c{HALF}"}}
    yield "a claim's name", {"metadata": sound, "spec": {"volumes": [claim]}}
    yield "the node's name", {"metadata": sound, "spec": {"nodeName": HALF}}


def _is_refused(manifest: dict[str, Any]) -> bool:
    """By the manifest's door. What each door makes of it is valid text: U+FFFD is in the place of
    half a character."""
    try:
        read = read_pod(manifest)
    except FieldError as error:
        str(error).encode()
    else:
        f"{read.key} {read.uid} {read.labels}".encode()
    try:
        asked = read_extender_args(json.dumps({"Pod": manifest, "NodeNames": ["n1"]}).encode()).pod
    except ProtocolError as error:
        str(error).encode()
    else:
        f"{asked.key} {asked.uid} {asked.labels} {asked.claims} {asked.node_name}".encode()
    pod = Converter().pod(manifest)
    assert pod is not None
    f"{pod.key} {pod.uid} {pod.problem}".encode()
    return pod.problem is not None


async def _noted(count: int) -> tuple[int, int]:
    with tempfile.TemporaryDirectory(prefix="leadline-noted-") as folder:
        recorder = Recorder(HistorySettings(Path(folder) / "d.db"))
        log = DecisionLog(limit=count, sink=recorder.put)
        for number in range(count):
            odd = HALF if number == count // 2 else ""
            pod = Pod("default", f"p{number}{odd}", uid=f"u{number}{odd}")
            log.add(Decision(pod, None, f"because{odd}", "dacs", "lower"), 0.0, PENDING, {})
            log.set_outcome(pod.key, f"failed: 503{odd}")
        recorder.start()
        try:
            listed, _ = await recorder.since(None)
        finally:
            await recorder.stop()
        watched = [placement(record, log.now()).SerializeToString() for record in log.all()]
    return len(listed), len(watched)
