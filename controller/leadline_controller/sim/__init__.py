"""Clusters that are not there: from a file, or simulated."""
