"""The boards of a simulated cluster as its nodes: they join, leave, lose power and are cordoned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from random import Random

from leadline_controller.framework.model import CPU, MEMORY, PODS, Node

from tests.controller.probing.day_boards import Board
from tests.endurance.api_server import SimulatedApiServer
from tests.endurance.boards import EnduringBoards
from tests.endurance.churn import HOSTNAME, ZONE, ZONES

_GIB = 2**30
_CPU_M, _MEMORY_GIB, _PODS_MOST = (500, 1000, 2000), (1, 2, 4), 30
# The node controller's grace period.
_KUBELET_LATE_S = 40.0
_AGAIN_S = 5.0


class Members:
    """The boards' nodes. `faults`: what can go wrong with one board that is running."""

    def __init__(self, server: SimulatedApiServer, boards: EnduringBoards, random: Random) -> None:
        self._server, self._loop = server, server.loop
        self._boards, self._random = boards, random
        self.faults: Mapping[str, Callable[[Board], None]] = {
            "agents that died": self._die,
            "boards without power": self._lose_power,
            "boards that left": self._leave,
            "nodes that were cordoned": self._cordon,
            "links that flapped": boards.flap,
            "links that were throttled": self._throttle,
            "boards' clocks that were set": self._set_clock,
        }

    def some(self) -> Board | None:
        """A board by chance; None if it is away just now."""
        board = self._random.choice(self._boards.boards)
        return board if board.is_member and board.is_running else None

    def join(self, board: Board) -> None:
        """The board and its node come; later if the API server is away."""
        if not self._server.is_up:
            self._loop.call_later(_AGAIN_S, self.join, board)
            return
        board.is_member = True
        self._server.put_node(self.node_of(board))
        self._start_agent(board, board.boot > 0)

    def node_of(self, board: Board) -> Node:
        """The board's node when it joins."""
        at = int(board.name[1:])
        room = {
            CPU: _CPU_M[at % len(_CPU_M)],
            MEMORY: _MEMORY_GIB[at % len(_MEMORY_GIB)] * _GIB,
            PODS: _PODS_MOST,
        }
        labels = {HOSTNAME: board.name, ZONE: f"z{at % ZONES}"}
        return Node(board.name, allocatable=room, labels=labels, addresses=(board.address,))

    def _start_agent(self, board: Board, rebooted: bool) -> None:
        if board.is_member and not board.is_running:
            self._boards.now_s = self._loop.now_s
            self._boards.start_agent(board, rebooted=rebooted)

    def _change(self, board: Board, **flags: bool) -> None:
        """Change the board's node; later if the API server is away."""
        if not self._server.is_up:
            self._loop.call_later(_AGAIN_S, partial(self._change, board, **flags))
        elif (node := self._server.found_node(board.name)) is not None:
            self._server.put_node(replace(node, **flags))  # type: ignore[arg-type]  # they are bool

    # Faults.

    def _die(self, board: Board) -> None:
        self._boards.stop_agent(board)
        away_s, rebooted = self._random.expovariate(1 / 60), self._random.random() < 0.2
        self._loop.call_later(away_s, self._start_agent, board, rebooted)

    def _lose_power(self, board: Board) -> None:
        self._boards.stop_agent(board)
        self._loop.call_later(_KUBELET_LATE_S, self._miss, board)
        self._loop.call_later(self._random.uniform(30.0, 600.0), self._power, board)

    def _miss(self, board: Board) -> None:
        if not board.is_running:
            self._change(board, ready=False)

    def _power(self, board: Board) -> None:
        self._start_agent(board, True)
        self._change(board, ready=True)

    def _leave(self, board: Board) -> None:
        if not self._server.is_up:
            return
        self._boards.stop_agent(board)
        board.is_member = False
        for pod in self._server.pods:
            if pod.node_name == board.name:
                self._server.delete(pod.key)
        self._server.remove_node(board.name)
        self._loop.call_later(self._random.uniform(60.0, 3600.0), self.join, board)

    def _cordon(self, board: Board) -> None:
        self._change(board, unschedulable=True)
        uncordon = partial(self._change, board, unschedulable=False)
        self._loop.call_later(self._random.uniform(30.0, 900.0), uncordon)

    def _throttle(self, board: Board) -> None:
        if board.mbps < board.full_mbps:
            return
        board.mbps = max(2.0, board.full_mbps * self._random.choice((0.05, 0.1, 0.3)))
        free = partial(setattr, board, "mbps", board.full_mbps)
        self._loop.call_later(self._random.uniform(300.0, 1800.0), free)

    def _set_clock(self, board: Board) -> None:
        board.wall_s, board.clock_set_s = self._random.uniform(-600, 600), self._loop.now_s
