"""Simulation models that the experiments share: links, CPUs, registries, users, autoscalers.

What only one paper needs belongs to its experiment.
"""
