"""Offline clusters: from a file, or in memory for the demo. No I/O other than that file.

Simulation models of single papers belong in experiments/.
"""
