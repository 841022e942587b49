"""What TLS asks of the other end's certificate."""

import ssl
from pathlib import Path


def tls_context(ca_file: Path) -> ssl.SSLContext:
    """A context that trusts this authority only, checks the server's name, and asks the same under
    every Python, as mosquitto's clients do. Raises OSError (ssl.SSLError is one)."""
    context = ssl.create_default_context(cafile=ca_file)
    # Authorities of one's own often lack what Python 3.13 asks for by default.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    # A server's own certificate, or one between, may be what is trusted; 3.13 does that by default.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
