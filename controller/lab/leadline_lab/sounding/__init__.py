"""Networks that a file describes, and what Leadline would know of them. No packet is sent.

The planner and the estimates are the controller's own; they do not belong here.
"""
