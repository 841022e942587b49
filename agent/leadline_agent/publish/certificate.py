"""Explains by this node's own certificate why a broker may have refused it."""

from datetime import datetime

from leadline_wire.certificates import Certificate


def identity(certificate: Certificate) -> str:
    """Name and end of validity, in words."""
    name = certificate.common_name or "nobody"
    return f"its certificate: {name}, until {certificate.not_after:%Y-%m-%d}"


def fault(certificate: Certificate, node: str, now: datetime) -> str:
    """Why the broker may refuse it, in words; "" if nothing is visibly wrong."""
    if now > certificate.not_after:
        return f"this node's certificate expired on {certificate.not_after:%Y-%m-%d}: renew it"
    if now < certificate.not_before:
        return (
            f"this node's clock says {now:%Y-%m-%d}, before its certificate begins: set the clock"
        )
    if certificate.common_name != node:
        return (
            f"this node's certificate is {certificate.common_name or 'nobody'}'s, but its settings "
            f"say node = {node}: give it its own certificate, or mend the name"
        )
    return ""
