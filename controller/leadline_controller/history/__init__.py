"""Decisions that last: a bounded database beside the controller, written in its own thread."""
