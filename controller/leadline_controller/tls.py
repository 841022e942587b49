"""What TLS asks of the other end's certificate."""

import ssl
from pathlib import Path


def tls_context(
    ca_file: Path | None = None, purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH
) -> ssl.SSLContext:
    """A context that trusts this authority, without one those of the system, and asks the same
    under every Python, as Go does. Raises OSError (ssl.SSLError is one)."""
    context = ssl.create_default_context(purpose, cafile=ca_file)
    # Authorities of one's own often lack what Python 3.13 asks for by default.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    # A server's own certificate, or one between, may be what is trusted; 3.13 does that by default.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
