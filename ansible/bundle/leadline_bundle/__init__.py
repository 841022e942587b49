"""Makes the bundle: everything of one version that a rollout puts on boards and server.

It runs on the control machine, which alone needs the internet.
"""
