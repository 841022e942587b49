"""Kubernetes manifests, as decoded JSON or YAML -> the framework's model.

Requests to an API server belong in kube/.
"""
