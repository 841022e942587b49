"""Real agents, brokers and shaped links on one machine.

Tests of the lab and demos use it; nothing in the controller does.
"""
