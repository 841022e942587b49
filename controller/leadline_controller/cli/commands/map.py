"""Show a recording in the browser."""

import asyncio
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import click

from leadline_controller.cli.errors import BadInput, Failed
from leadline_controller.cli.output import clean, progress
from leadline_controller.history.recording_files import RecordingError
from leadline_controller.serve.settings import ServeError


@click.command(epilog="Example: leadline map docs/recordings/home.recording")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Where the map is served on this machine; 0 is a free one.",
)
def map(path: Path, port: int) -> None:  # noqa: A001  # a command has its file's name
    """Serve the map of a recording, a file or a folder of them, on this machine until Ctrl-C: its
    time slider goes through the recorded hours. No controller, cluster or network is needed. What
    of the recording is damaged is left out, and the page says so."""
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(path, port))


async def _serve(path: Path, port: int) -> None:
    from leadline_controller.map.recorded import serving  # numpy and a web server take long

    async with AsyncExitStack() as stack:
        try:
            with progress("reading") as report:
                address, recorded = await stack.enter_async_context(serving(path, port, report))
        except RecordingError as error:
            raise BadInput(clean(error)) from None
        except OSError as error:
            raise BadInput(f"{error.filename or path}: {error.strerror}") from None
        except ServeError as error:
            raise Failed(str(error)) from None
        if recorded.missing:
            click.echo(f"leadline: not shown: {recorded.missing}", err=True)
        click.echo(f"{clean(path)} is shown at {address} until Ctrl-C")
        await asyncio.Event().wait()
