"""How long threads waited for a processor, from the kernel's counters."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from leadline_agent.probes.processor_wait import ProcessorWait

PID = 7


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    stat(tmp_path, stolen_ticks=0)
    return tmp_path


def stat(proc: Path, stolen_ticks: int) -> None:
    (proc / "stat").write_text(f"cpu  10 0 10 80 0 0 0 {stolen_ticks} 0 0\n")


def waited(proc: Path, thread: int, waited_ms: float) -> Path:
    folder = proc / str(PID) / "task" / str(thread)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schedstat").write_text(f"5000000 {round(waited_ms * 1e6)} 12\n")
    return folder


def test_what_a_thread_waited_before_does_not_count(proc: Path) -> None:
    wait = ProcessorWait([waited(proc, 7, 30.0)])
    waited(proc, 7, 34.5)
    assert wait.us() == 4500


def test_the_threads_of_a_process_count_also_those_that_have_ended(proc: Path) -> None:
    waited(proc, 7, 2.0)
    wait = ProcessorWait.of_process(PID)
    ended = waited(proc, 8, 3.0)
    wait.look(PID)
    (ended / "schedstat").unlink()
    ended.rmdir()
    waited(proc, 7, 6.0)
    wait.look(PID)
    assert wait.us() == 7000


def test_what_was_seen_of_a_process_counts_when_it_is_gone(proc: Path) -> None:
    folder = waited(proc, 7, 2.0)
    wait = ProcessorWait.of_process(PID)
    waited(proc, 7, 5.0)
    wait.look(PID)
    (folder / "schedstat").unlink()
    folder.rmdir()
    wait.look(PID)
    assert wait.us() == 3000


def test_what_a_hypervisor_took_counts(proc: Path) -> None:
    wait = ProcessorWait()
    stat(proc, stolen_ticks=2)
    assert wait.us() == 20_000


@pytest.mark.parametrize("is_known", [(False, True), (True, False)])
def test_what_was_stolen_before_is_no_wait_of_now_when_a_reading_fails(
    proc: Path, is_known: tuple[bool, bool]
) -> None:
    texts = ("cpu <unknown>\n", f"cpu  10 0 10 80 0 0 0 {10**6} 0 0\n")
    (proc / "stat").write_text(texts[is_known[0]])
    wait = ProcessorWait()
    (proc / "stat").write_text(texts[is_known[1]])
    assert wait.us() == 0


def test_a_kernel_without_counters_has_no_waits(proc: Path) -> None:
    assert ProcessorWait([proc / "none"]).us() == 0


def test_a_thread_on_a_processor_with_others_waits() -> None:
    processor = min(psutil.Process().cpu_affinity())
    busy = (
        "import os, sys\n"
        f"os.sched_setaffinity(0, [{processor}])\n"
        "print(flush=True)\n"
        "while True: pass"
    )
    others = [
        subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE) for _ in range(2)
    ]
    try:
        for each in others:
            assert each.stdout is not None
            each.stdout.readline()
        wait = ProcessorWait.of_process(others[0].pid)
        while wait.us() < 20_000:  # for ever if nobody counts
            wait.look(others[0].pid)
    finally:
        for each in others:
            each.kill()
            each.communicate()
