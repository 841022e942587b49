"""Clusters that are not there: from a file, or in memory, with a clock that is moved by hand.

Simulation models of single papers belong in experiments/.
"""
