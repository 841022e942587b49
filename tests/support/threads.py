"""Threads of tests."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread


@contextmanager
def beside(*works: Callable[[], object], done: Event | None = None) -> Iterator[Event]:
    """Each work in a thread during the block. Yields `done`, which is set at the end of the block;
    then the works end, and are waited for."""
    done = done or Event()
    threads = [Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        done.set()
        for thread in threads:
            thread.join()
