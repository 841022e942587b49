"""Offline clusters: from a file, or in memory with a manual clock. No I/O other than that file.

Simulation models of single papers belong in experiments/.
"""
