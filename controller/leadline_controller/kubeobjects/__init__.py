"""Kubernetes manifests as JSON-like data -> the framework's model.

Requests to an API server belong in kube/.
"""
