"""How a command fails: one line on standard error, and the exit code that scripts read."""

import click


class Failed(click.ClickException):
    """The answer is no, or the work failed."""

    exit_code = 1


class BadInput(click.ClickException):
    """What the user gave can't be used."""

    exit_code = 2


class Unreachable(click.ClickException):
    """The controller can't be reached."""

    exit_code = 3
