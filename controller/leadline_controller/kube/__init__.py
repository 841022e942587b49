"""The Kubernetes API: list and watch, bind, events, the Lease; implements the framework's ports.

Manifests are read in kubeobjects/; decisions are made in scheduling/.
"""
