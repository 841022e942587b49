"""The Grafana dashboards, which `make dashboards` writes into the role `grafana` as JSON.

What a panel shows and asks belongs here; what the metrics mean is on docs/metrics.md.
"""
