"""Leader election among controllers: the rules of a Lease, and the loop that renews it.

The Lease on an API server is in kube/.
"""
