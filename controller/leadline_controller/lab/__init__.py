"""Real agents, brokers and shaped links on one machine, for demos and tests.

`leadline lab` uses this package. What a controller does on a cluster does not belong here.
"""
