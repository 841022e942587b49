"""Builds the bundle: all files of one release that a rollout installs on boards and server.

It runs on the control machine, the only one that needs the internet.
"""
