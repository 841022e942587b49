"""Who calls: whether a caller may change the cluster, and not only look at it.

Whoever can write to the controller's Unix socket may, and so may root and the controller's own user
on this machine; on another machine those with a client certificate whose name is configured. All
others may not.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from leadline_controller.api.listeners import THIS_MACHINE, peer_of

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"


def why_refused(
    address: object,
    server_port: int,
    certificate: Mapping[str, Iterable[bytes]],
    admins: Sequence[str],
) -> str:
    """Why this caller may not change the cluster; empty if it may. Reads /proc.

    address: of the caller's socket, as `accept` returned it. certificate: the authentication
    context of the call, empty without TLS. admins: common names that may.
    """
    if b"ssl" in certificate.get("transport_security_type", ()):
        names = [each.decode(errors="replace") for each in certificate.get("x509_common_name", ())]
        if any(name in admins for name in names):
            return ""
        shown = ", ".join(name[:80] for name in names) or "none"
        return (
            f"the certificate's common name ({shown}) is not in admins of the section "
            "[rescheduling] of the controller's settings"
        )
    if not isinstance(address, tuple):
        return ""
    if peer_of(address) == THIS_MACHINE:
        allowed = {0, os.getuid()}
        users = _users_of(int(address[1]), server_port)
        if users and users <= allowed:
            return ""
        return "only root and the controller's user may; call it with sudo"
    return "callers on other machines need TLS with a client certificate"


def _users_of(client_port: int, server_port: int) -> set[int]:
    """The users of the connected sockets of this machine between these ports."""
    users = set()
    for table in _TABLES:
        try:
            lines = table.read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            columns = line.split()
            (_, local), (_, remote) = (columns[i].split(":") for i in (1, 2))
            ports = int(local, 16), int(remote, 16)
            if ports == (client_port, server_port) and columns[3] == _ESTABLISHED:
                users.add(int(columns[7]))
    return users
