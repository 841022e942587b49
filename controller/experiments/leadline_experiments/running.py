"""Runs experiments, one here or several in processes of their own.

Each gets the seed and nothing of the others, and they come back in the order asked for, so
that what they say does not depend on how many ran at once.
"""

import importlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from ctypes import c_double
from typing import Any

from leadline_experiments.result import Experiment, Progress, Result

_POLL_S = 0.2
_shares: Any = None  # in a worker: the share that is done of each experiment


def run(module: str, seed: int, progress: Progress = lambda _: None) -> Result:
    """Run the experiment that this module is."""
    experiment: Experiment = importlib.import_module(module).run
    return experiment(seed, progress)


def run_all(
    experiments: Mapping[str, str], seed: int, progress: Progress, workers: int | None = None
) -> list[Result]:
    """Run experiments (name -> module), `workers` at a time (None: as many as cores), and
    return their results in the order of the mapping."""
    # Spawned: a fork would inherit the threads of numpy and of the progress bar half alive.
    context = multiprocessing.get_context("spawn")
    shares = context.Array(c_double, len(experiments), lock=False)
    at_once = workers or min(len(experiments), os.cpu_count() or 1)
    pool = ProcessPoolExecutor(at_once, context, _begin, (shares,))
    try:
        futures = [
            pool.submit(_run_counted, module, seed, number)
            for number, module in enumerate(experiments.values())
        ]
        _wait(futures, shares, progress)
        return [future.result() for future in futures]
    finally:
        _end(pool)


def _wait(futures: Sequence[Future[Result]], shares: Any, progress: Progress) -> None:
    left = set(futures)
    while left:
        done, left = wait(left, timeout=_POLL_S)
        progress(sum(shares) / len(shares))
        if any(future.exception() for future in done):
            return


def _end(pool: ProcessPoolExecutor) -> None:
    """Leave no experiment running, whatever ended the wait for them."""
    pool.shutdown(wait=False, cancel_futures=True)
    for child in multiprocessing.active_children():
        child.terminate()


def _begin(shares: Any) -> None:
    global _shares
    _shares = shares
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the terminal's Ctrl-C ends it without a word
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """A worker would go on computing for nobody."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # noqa: S101  # only workers run this
    parent.join()
    os._exit(1)


def _run_counted(module: str, seed: int, number: int) -> Result:
    def report(done: float) -> None:
        _shares[number] = done

    found = run(module, seed, report)
    report(1.0)
    return found
