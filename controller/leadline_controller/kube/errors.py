"""What can be wrong with the way to the API server, apart from the client library: its import
takes longer than all else that a wrong command line or configuration file needs."""


class KubeConfigError(Exception):
    """The way to the API server is not stated, or not safe; str() is one line for a person."""
