"""Takes pending pods, decides with the framework's cycle, and has the cluster bind them.

Both ways in are here: the scheduler's loop, and the service behind kube-scheduler's extender calls.
HTTP belongs in api/, requests to the API server in kube/.
"""
