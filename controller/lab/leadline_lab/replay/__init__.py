"""Recorded hours run again, as they were or under another strategy, and what came of them.

What is recorded, and its files, belong in the controller's history.
"""
