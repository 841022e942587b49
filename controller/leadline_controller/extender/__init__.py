"""The scheduler extender: kube-scheduler's questions over HTTP, and the answers.

How a pod is decided is in scheduling/, which this shares with the scheduling loop.
"""
