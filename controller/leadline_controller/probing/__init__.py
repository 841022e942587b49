"""Plans probes, sends their leases to agents, and checks the results against the leases.

The measurements themselves belong in telemetry/.
"""
