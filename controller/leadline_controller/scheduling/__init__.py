"""Takes pending pods, decides with the pure cycle, and has the cluster bind them."""
