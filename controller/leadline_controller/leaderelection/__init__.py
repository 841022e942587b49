"""Which of several controllers acts: the rules of a Lease, and the loop that keeps it.

The Lease on an API server is in kube/.
"""
