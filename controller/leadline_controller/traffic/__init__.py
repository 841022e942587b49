"""Who talks to whom: joins the boards' counts of connections with pods, nodes and addresses.

What a decision reads of it belongs in framework/traffic.py.
"""
