"""How a command fails: one line on standard error, and the exit code that scripts read."""

import click


class Failed(click.ClickException):
    """The answer is negative, or the work failed."""

    exit_code = 1


class NotFound(Failed):
    """The controller knows no node or pod of this name."""


class BadInput(click.ClickException):
    """An argument or a file cannot be used."""

    exit_code = 2


class Unreachable(click.ClickException):
    """The controller does not answer."""

    exit_code = 3
