"""Hostile files and pods: every reader takes time and memory in proportion to what it reads.

Files go to the real `leadline` and `leadline-controller`, each in a process of its own that the
kernel ends at its bounds; mutated snapshots go to a fork of one process that has imported the
command. Pods of more than a megabyte are read and decided on over a full cluster.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.attack.hostile_pods import pod_checks
from tests.attack.hostile_snapshots import mutation, seed_documents
from tests.attack.hostile_texts import numbers_in_toml, snapshots_by_the_thousand, texts
from tests.support.check import Check

MB = 1 << 20
TEXT_BYTES = 2 * MB
MUTATIONS = 20_000
SIDE = 5_000
_FILE_CPU_S, _FILE_MEMORY_MB = 120, 2_000
_MUTANT_CPU_S, _MUTANT_MEMORY_MB = 20, 1_000
_SCORE_CPU_S = 3 * 3_600
_SCORE_RSS_MB = 400


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended. code: negative is a signal. cpu_s: user and system time. rss_mb: its
    peak resident memory. errors: what it wrote to standard error."""

    code: int
    cpu_s: float
    rss_mb: float
    errors: str

    @property
    def is_clean(self) -> bool:
        """Whether it ended with a documented exit code, and one line for an error at most."""
        return (
            self.code in (0, 1, 2)
            and self.errors.count("\n") <= 1
            and len(self.errors) < 1_000
            and "Traceback" not in self.errors
            and "internal error" not in self.errors
        )

    def __str__(self) -> str:
        ended = f"exit {self.code}, {self.cpu_s:.1f} s CPU, {self.rss_mb:.0f} MB"
        return ended if not self.errors else f"{ended}, {self.errors.strip()[:90]!r}"


def run_bounded(
    arguments: Iterable[str], cpu_s: int, memory_mb: int, environ: Mapping[str, str] | None = None
) -> Ended:
    """Run `python -m ARGUMENTS`; the kernel ends it at these bounds. Its output is dropped."""

    def bounds() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
        resource.setrlimit(resource.RLIMIT_AS, (memory_mb * MB, memory_mb * MB))

    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **(environ or {})},
            preexec_fn=bounds,  # this process has one thread
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        return Ended(
            process.returncode,
            used.ru_utime + used.ru_stime,
            used.ru_maxrss / 1024,
            errors.read().decode(errors="replace"),
        )


def file_checks(size: int = TEXT_BYTES) -> Iterator[Check]:
    """Texts of about `size` bytes as snapshots, through `leadline score`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "snapshot.yaml")
        for name, text in (*texts(size), *snapshots_by_the_thousand(size)):
            path.write_text(text, encoding="utf-8")
            arguments = ["leadline_controller.cli", "score", "--snapshot", str(path)]
            ended = run_bounded(arguments, _FILE_CPU_S, _FILE_MEMORY_MB)
            yield Check(
                f"score, {len(text) / MB:.1f} MB of {name}",
                f"exit 0, 1 or 2, one line, under {_FILE_CPU_S} s CPU and {_FILE_MEMORY_MB} MB",
                str(ended),
                ended.is_clean,
            )


def toml_checks() -> Iterator[Check]:
    """Numbers of thousands of digits in TOML files and in options."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "settings.toml")
        for name, module, text, arguments in numbers_in_toml():
            path.write_text(text, encoding="utf-8")
            ended = run_bounded([module, *arguments, str(path)], 20, _FILE_MEMORY_MB)
            one_line = ended.is_clean and ended.errors.count("\n") == 1
            yield Check(
                f"{module.rpartition('.')[2]}, {name}",
                "exit code 2 and one line",
                str(ended),
                one_line and ended.code == 2,
            )
        path.write_text("nodes: []\napiVersion: leadline.dev/v1\nkind: ClusterSnapshot\n")
        for option in ("alpha=" + "9" * 100_000, "9" * 100_000, "x" * 100_000 + "=1"):
            arguments = ("score", "--strategy", "dacs", "--snapshot", str(path), "--option", option)
            ended = run_bounded(["leadline_controller.cli", *arguments], 20, _FILE_MEMORY_MB)
            yield Check(
                f"score --option {option[:8]}... of {len(option):,} characters",
                "exit code 2 and one line",
                str(ended),
                ended.is_clean and ended.code == 2,
            )


def mutation_check(count: int = MUTATIONS, seed: int = 12) -> Check:
    """Snapshots with flipped bits, cuts, exchanged types, doubled names, deep nesting, huge numbers
    and lone surrogates, each scored in a process of its own."""
    from leadline_controller.cli.__main__ import run
    from leadline_controller.cli.commands.score import score  # noqa: F401  # so that no fork imports it

    random, documents = Random(seed), seed_documents()  # repeats the attack
    codes: dict[int, int] = {}
    bad: list[str] = []
    slowest_s = largest_mb = 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "snapshot.json")
        for number in range(count):
            kind, content = mutation(random, documents)
            path.write_bytes(content)
            strategy = random.choice(("dacs", "netsched", "kubedsm", "infrastructure-aware"))
            output = random.choice(("json", "table", "wide", "yaml"))
            arguments = ["score", "--snapshot", str(path), "--strategy", strategy, "-o", output]
            ended = _forked(lambda arguments=arguments: run(arguments))  # type: ignore[misc]
            codes[ended.code] = codes.get(ended.code, 0) + 1
            slowest_s, largest_mb = max(slowest_s, ended.cpu_s), max(largest_mb, ended.rss_mb)
            if not ended.is_clean:
                bad.append(f"number {number} ({kind}, {strategy}, {output}): {ended}")
    ends = ", ".join(f"exit {code}: {number:,}" for code, number in sorted(codes.items()))
    found = f"{ends}; slowest {slowest_s:.1f} s CPU, largest {largest_mb:.0f} MB"
    return Check(
        f"{count:,} mutated snapshots (seed {seed})",
        f"exit 0, 1 or 2, one line, {_MUTANT_CPU_S} s and {_MUTANT_MEMORY_MB} MB at most",
        "; ".join([found, *bad[:5]]),
        not bad,
    )


def _forked(work: Callable[[], int]) -> Ended:
    """Do the work in a fork of this process, with its output dropped."""
    with tempfile.TemporaryFile() as errors:
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                resource.setrlimit(resource.RLIMIT_CPU, (_MUTANT_CPU_S, _MUTANT_CPU_S))
                most = _MUTANT_MEMORY_MB * MB
                resource.setrlimit(resource.RLIMIT_AS, (most, most))
                sys.stdout = open(os.devnull, "w", errors="backslashreplace")  # noqa: SIM115, PTH123
                sys.stderr = open(errors.fileno(), "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
                code = work()
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)
        _, status, used = os.wait4(pid, 0)
        errors.seek(0)
        return Ended(
            os.waitstatus_to_exitcode(status),
            used.ru_utime + used.ru_stime,
            used.ru_maxrss / 1024,
            errors.read().decode(errors="replace"),
        )


def score_checks(side: int = SIDE, outputs: Iterable[str] = ("table", "json")) -> Iterator[Check]:
    """`side` pods over `side` nodes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "snapshot.json")
        path.write_text(json.dumps(square(side)))
        for output in outputs:
            arguments = ("score", "--strategy", "dacs", "--snapshot", str(path), "-o", output)
            start_s = time.monotonic()
            ended = run_bounded(["leadline_controller.cli", *arguments], _SCORE_CPU_S, 16_000)
            took_s = time.monotonic() - start_s
            yield Check(
                f"score -o {output}, {side:,} pods over {side:,} nodes",
                f"exit 0, under {_SCORE_RSS_MB} MB",
                f"{ended}, {took_s:.0f} s",
                ended.is_clean and ended.code == 0 and ended.rss_mb < _SCORE_RSS_MB,
            )


def square(side: int) -> dict[str, object]:
    """A snapshot of `side` measured nodes and as many pods, all of which fit."""
    metrics = {"cpu_percent": 10.0, "memory_percent": 20.0, "bandwidth_mbps": 90.0}
    requests = {"cpu": "10m", "memory": "16Mi"}
    return {
        "apiVersion": "leadline.dev/v1",
        "kind": "ClusterSnapshot",
        "nodes": [
            {
                "name": f"node-{i}",
                "allocatable": {"cpu": "4", "memory": "8Gi", "pods": 110},
                "bandwidth_mbps": 100,
                "metrics": {**metrics, "cpu_percent": i % 90},
            }
            for i in range(side)
        ],
        "pods": [
            {
                "metadata": {
                    "name": f"pod-{i}",
                    "annotations": {"leadline.dev/user-node": f"node-{i * 7 % side}"},
                },
                "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
            }
            for i in range(side)
        ],
    }


def main() -> Iterable[Check]:
    """All of it in full length."""
    yield from file_checks()
    yield from toml_checks()
    yield from pod_checks()
    yield mutation_check()
    yield from score_checks()
