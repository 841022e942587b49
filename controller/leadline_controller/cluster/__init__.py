"""The state of nodes, pods, namespaces and volumes, folded from the cluster's changes.

Where the changes come from is behind the Cluster port.
"""
