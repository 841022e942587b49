"""Measured series of a node as messages of the inspection service, bounded in steps."""

import asyncio
import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.inspect.order import in_order
from leadline_controller.inspect.parts import Observed
from leadline_controller.telemetry.series import COARSE, FINE, LEAST, MEAN, MOST, Block, resampled

_MAX_STEPS = 1440  # and one more, if the first one begins earlier than asked
_DEFAULT_S = 3600
_DAY_S = 86_400
_OLDEST_S = 15 * _DAY_S
# A day in minutes ends this much earlier, because a block is deleted as a whole.
_FINE_S = _DAY_S + FINE.block_s


class Span(NamedTuple):
    """`steps` steps from the Unix second `from_s` on."""

    from_s: int
    step_s: int
    steps: int


def span(request: pb.GetHistoryRequest, now_s: float) -> Span:
    """The steps that a request asks for, within the bounds. Raises ValueError for times that make
    no sense; str() says which."""
    asked = (request.from_unix_s, request.to_unix_s, request.step_s)
    if not all(map(math.isfinite, asked)) or request.to_unix_s < 0 or request.step_s < 0:
        raise ValueError("from_unix_s, to_unix_s, step_s: expected seconds, 0 for the default")
    oldest_s = now_s - _OLDEST_S
    to_s = min(request.to_unix_s or now_s, now_s + _DAY_S)
    from_s = request.from_unix_s
    if from_s <= 0:
        from_s = to_s + (from_s or -_DEFAULT_S)
    if from_s >= to_s:
        raise ValueError("from_unix_s: expected a time before to_unix_s")
    from_s, to_s = max(from_s, oldest_s), max(to_s, oldest_s)
    from_s = min(from_s, to_s)
    least_s = COARSE.step_s if from_s < now_s - _FINE_S else FINE.step_s
    wanted_s = max(request.step_s, (to_s - from_s) / _MAX_STEPS, least_s)
    step_s = math.ceil(min(wanted_s, _OLDEST_S) / least_s) * least_s
    first_s = int(from_s // step_s * step_s)
    return Span(first_s, step_s, max(1, math.ceil((to_s - first_s) / step_s)))


async def blocks_of(source: Observed, board: str, shown: Span) -> Sequence[Block]:
    """What was measured of the board in this span, also what is not stored yet."""
    end_s = shown.from_s + shown.steps * shown.step_s
    blocks = await source.history.series(board, shown.from_s, end_s)
    # The sampler reads all boards under its lock, and makes blocks of all at times.
    newest = await asyncio.to_thread(source.sampler.block, board)
    return [*blocks, newest] if newest else blocks


def response(blocks: Sequence[Block], shown: Span, names: Collection[str]) -> pb.GetHistoryResponse:
    """The series of these names that the blocks have, all if `names` is empty. It takes up to a
    second on a small board."""
    found = resampled(blocks, shown.from_s, shown.steps, shown.step_s)
    wanted = frozenset(names)
    keys = [key for key in found if not wanted or key.name in wanted]
    keys.sort(key=lambda key: (key.peer != "", key.name, in_order(key.peer)))
    return pb.GetHistoryResponse(
        from_unix_s=shown.from_s,
        step_s=shown.step_s,
        series=[
            pb.Series(
                name=key.name,
                peer=key.peer,
                mean=found[key][:, MEAN],
                min=found[key][:, LEAST],
                max=found[key][:, MOST],
            )
            for key in keys
        ],
    )
