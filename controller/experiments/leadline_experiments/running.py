"""Run experiments: one in this process, or several in worker processes.

An experiment gets the seed and nothing from the others, and results come back in the order of
the request. So the results do not depend on the number of workers.
"""

import importlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, wait
from ctypes import c_double
from typing import Any

from leadline_controller.framework.cycle import Strategy
from leadline_controller.framework.options import build
from leadline_controller.strategies import STRATEGIES

from leadline_experiments.result import Experiment, Progress, Result

_POLL_S = 0.2
_progress: Any = None  # in a worker: the share done of each experiment, in shared memory


def run(
    module: str, seed: int, progress: Progress = lambda _: None, strategy: str | None = None
) -> Result:
    """Run the experiment in this module. strategy: the name of one that joins the paper's methods,
    with its default options."""
    experiment: Experiment = importlib.import_module(module).run
    joining: Strategy | None = None if strategy is None else build(STRATEGIES[strategy], {})
    return experiment(seed, progress, joining)


def run_all(
    experiments: Mapping[str, str],
    seed: int,
    progress: Progress,
    workers: int | None = None,
    strategy: str | None = None,
) -> list[Result]:
    """Run experiments (name -> module), `workers` at a time (None: one per core).

    The results have the order of the mapping. An exception of one experiment ends the others
    and is raised here.
    """
    # Spawn, because a fork inherits broken threads of numpy and of the progress bar.
    context = multiprocessing.get_context("spawn")
    shares: Any = context.Array(c_double, len(experiments), lock=False)
    at_once = workers or min(len(experiments), os.cpu_count() or 1)
    pool = ProcessPoolExecutor(at_once, context, _start_worker, (shares,))
    try:
        modules = enumerate(experiments.values())
        futures = [
            pool.submit(_run_in_worker, module, seed, index, strategy) for index, module in modules
        ]
        pending = set(futures)
        while pending:
            done, pending = wait(pending, timeout=_POLL_S)
            progress(sum(shares) / len(shares))
            for future in done:
                future.result()  # raises the exception of an experiment that failed
        return [future.result() for future in futures]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.terminate()


def _start_worker(shares: Any) -> None:
    global _progress
    _progress = shares
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the worker without a traceback
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """End a worker whose parent was killed; it would compute to the end otherwise."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # noqa: S101  # only workers run this
    parent.join()
    os._exit(1)


def _run_in_worker(module: str, seed: int, index: int, strategy: str | None) -> Result:
    def report(share: float) -> None:
        _progress[index] = share

    result = run(module, seed, report, strategy)
    report(1.0)
    return result
