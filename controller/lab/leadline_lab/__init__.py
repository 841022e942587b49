"""Leadline on one machine, for `leadline lab`, the demo and tests: real agents, brokers, kubelets
and shaped links, and simulated boards on a network that is known (sounding/).

What a controller does on a cluster does not belong here.
"""
