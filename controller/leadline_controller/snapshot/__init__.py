"""A cluster as a file, written and read, and its pods placed offline. No I/O other than that file.

Simulation models of single papers belong in the experiments, the demo's cluster in the lab.
"""
