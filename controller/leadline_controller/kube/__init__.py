"""The Kubernetes API client: list and watch, bind, events, the Lease; implements the ports.

Manifests are read in kubeobjects/; decisions are made in scheduling/.
"""
