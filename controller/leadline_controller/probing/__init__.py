"""What agents measure next: plans probes, sends their leases, judges what comes back under them.

What was measured is kept in telemetry/.
"""
