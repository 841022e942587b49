"""What can go wrong in the lab, each as one sentence that can be shown to the user as it is."""


class LabError(Exception):
    """The lab cannot do what it was asked; the message says what, where and what to do."""


class SpecError(LabError):
    """A lab's description is wrong; the message names the file, the field and what was expected."""


class CommandError(LabError):
    """A system command failed; the message holds the command and what it said."""
