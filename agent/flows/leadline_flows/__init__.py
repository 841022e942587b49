"""Counts the connections of a board: netlink, sums, and one file a minute. No network of its own,
and nothing that the standard library does not have."""

__version__ = "0.2.0"
