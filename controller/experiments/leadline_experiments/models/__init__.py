"""Simulation models: CPUs, pulls, users, autoscalers.

They use no strategy and no paper's numbers; an experiment brings these together.
"""
