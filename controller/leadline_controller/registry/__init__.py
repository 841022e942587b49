"""Asks image registries for manifests, from which follow an image's layers. Its answers are
untrusted: sizes, numbers and digests are checked here. What nodes have is in cluster/.
"""
