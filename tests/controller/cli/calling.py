"""How the tests of commands call them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest
from leadline_controller.cli.__main__ import run


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Leadline = Callable[..., Awaitable[Outcome]]


def calling(capsys: pytest.CaptureFixture[str], *options: str) -> Leadline:
    """Runs a command with these options."""

    async def called(*arguments: str) -> Outcome:
        code = await asyncio.to_thread(run, [*arguments, *options])
        return Outcome(code, *capsys.readouterr())

    return called
