"""What all servers share: settings, sockets, TLS, limits, whose turn it is, gRPC and HTTP.

What one server answers belongs in its own room: inspect/, extender/, keda/, metrics/, map/.
"""
