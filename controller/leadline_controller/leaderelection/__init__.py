"""Leader election among controllers. The Lease on an API server is in kube/."""
