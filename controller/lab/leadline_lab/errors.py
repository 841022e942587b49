"""The errors of the lab. Each message is one sentence for the user."""


class LabError(Exception):
    """An operation on a lab failed; the message says what, where and what to do."""


class SpecError(LabError):
    """A lab's specification is invalid; the message names file, field, expected and found."""


class CommandError(LabError):
    """A system command failed; the message has the command and its output."""
