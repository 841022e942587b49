"""Moves of running pods: plans, what may move, and carrying a plan out without losing a pod. Where
pods go is the strategies' subject; requests to the API server are in kube/.
"""
