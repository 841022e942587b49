"""Kubernetes manifests, as decoded JSON or YAML -> the framework's model, and back.

Requests to an API server belong in kube/.
"""
