"""Placing on an edge beside a cloud: what KubeDSM and its baselines are made of."""
