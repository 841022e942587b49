"""A folder as a web server shows it, such as an index of packages."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@contextmanager
def served(folder: Path, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve the files of a folder on loopback. Yields the server's URL."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
