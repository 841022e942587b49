"""The error of a login, in a module of its own: a command that reports it need not import the
client library."""


class KubeConfigError(Exception):
    """The kubeconfig or service account can't be used, or is not safe; str() is one line."""
