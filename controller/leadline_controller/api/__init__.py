"""What others ask the controller: inspection over gRPC, the scheduler extender over HTTP.

Answers come from other rooms; this one bounds, authenticates and encodes.
"""
