"""Records of decisions and their outcomes: a log in memory, and a bounded database on disk.

scheduling/ makes the decisions, api/ shows them.
"""
