"""Simulation models that several experiments use: links, CPUs, registries, users, autoscalers."""
