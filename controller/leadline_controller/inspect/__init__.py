"""The inspection service over gRPC: nodes, links, placements, history, status, problems, plans.

It reads other rooms and encodes what they say. Who may connect is up to serve/.
"""
