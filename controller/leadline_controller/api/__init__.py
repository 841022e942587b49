"""The controller's servers: inspection over gRPC, and the scheduler extender over HTTP.

They limit, authenticate, parse and encode; the answers come from other rooms.
"""
