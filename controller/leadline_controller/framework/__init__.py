"""The scheduling framework: cycle, cluster view, model, queueing hints, ports.

Pure: no I/O, no clock, no global randomness. Nothing here names a filter, a strategy or a paper.
"""
