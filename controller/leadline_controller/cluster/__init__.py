"""The state of nodes, pods, namespaces and volumes, updated from the cluster's changes.

The changes come from a Cluster, which kube/ and snapshot/ implement.
"""
