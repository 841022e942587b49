"""Decides where pending pods go: the scheduler's loop, and the decision step that the extender
shares. HTTP belongs in extender/, requests to the API server in kube/.
"""
