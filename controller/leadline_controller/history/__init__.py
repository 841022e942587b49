"""Decisions, their outcomes and measured series: a log in memory, and a bounded database on disk.

scheduling/ makes the decisions, telemetry/ the series; inspect/ and map/ show them.
"""
