"""What Prometheus reads: the values, their names, and the server.

Counters are kept here as things happen; all other values stay in the rooms that have them.
"""
