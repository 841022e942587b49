"""Real agents, brokers, kubelets and shaped links on one machine, for `leadline lab`, demos and
tests. What a controller does on a cluster does not belong here."""
