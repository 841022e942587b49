"""Folds what the cluster and the agents say into the view that decisions are made on."""
