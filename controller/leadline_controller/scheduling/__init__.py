"""Decides where pending pods go: the scheduler's loop and the extender service, which share one
decision step. HTTP belongs in api/, requests to the API server in kube/.
"""
