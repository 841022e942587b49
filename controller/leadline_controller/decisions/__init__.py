"""Decisions and what became of them: the log in memory, and a bounded database that lasts.

Decisions are made in scheduling/ and shown by api/.
"""
