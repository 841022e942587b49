"""Leadline's controller: scores nodes and tells Kubernetes where to bind each pod."""

__version__ = "0.2.0"
