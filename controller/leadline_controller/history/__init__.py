"""Decisions, their outcomes and measured series: a log in memory, and a bounded database on disk.
Recordings of all that decisions depend on, in files.

scheduling/ makes the decisions, telemetry/ the series; inspect/ and map/ show them.
"""
