"""A client that asks a controller all the time what it knows of its boards."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import grpc
from leadline_controller.cli.client import Endpoint
from leadline_wire.v1 import control_pb2 as pb
from leadline_wire.v1.control_pb2_grpc import InspectionStub

POLL_S = 1.0
ANSWER_S = 10.0


class Client:
    """An inspection client: it asks for all nodes each second, and watches beside that."""

    def __init__(self, address: str) -> None:
        self._channel = Endpoint(address).channel()
        self._stub = InspectionStub(self._channel)
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._ask, self._watch)
        ]
        self.nodes: Sequence[pb.NodeStatus] = ()
        # When the last question was put that was answered, by the monotonic clock.
        self.answered_s = 0.0
        self.failures: list[tuple[float, str]] = []  # when, by the same clock, and why

    @contextmanager
    def asking(self) -> Iterator[None]:
        """It asks for the time of the block."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self.stop()

    def stop(self) -> None:
        """Ask no more."""
        self._over.set()
        self._channel.close()
        for thread in self._threads:
            thread.join()

    @property
    def lost(self) -> int:
        """Reports that never came."""
        return sum(each.lost_messages for each in self.nodes)

    def silent(self, for_s: float) -> list[str]:
        """The boards that were not heard for so long."""
        return [
            each.name
            for each in self.nodes
            if not each.HasField("report_age_s") or each.report_age_s > for_s
        ]

    def _ask(self) -> None:
        while not self._over.wait(POLL_S):
            begin_s = time.monotonic()
            try:
                self.nodes = self._stub.ListNodes(pb.ListNodesRequest(), timeout=ANSWER_S).nodes
                self.answered_s = begin_s
            except (grpc.RpcError, ValueError) as error:
                if not self._over.is_set():
                    why = error.details() if isinstance(error, grpc.Call) else str(error)
                    self.failures.append((begin_s, str(why)))

    def _watch(self) -> None:
        while not self._over.wait(POLL_S):
            try:
                for _ in self._stub.Watch(pb.WatchRequest()):
                    pass
            except (grpc.RpcError, ValueError):
                continue
