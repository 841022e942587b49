"""Honest clients of a controller, while others attack it.

`python -m tests.attack.honest JSON` asks until the standard input closes and then prints JSON: for
each service when each question was put (seconds of the monotonic clock) and whether it was
answered. Each question has a connection of its own, as a new client has.
"""

from __future__ import annotations

import http.client
import json
import ssl
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from click import ClickException
from leadline_controller.cli.client import Endpoint, connected
from leadline_controller.serve.settings import TlsFiles
from leadline_wire.v1 import control_pb2 as pb

from tests.support.threads import beside

EVERY_S = 0.5
# As long as the command line waits, and longer than kube-scheduler does.
ANSWER_S = 10.0
POD = {"metadata": {"name": "honest", "namespace": "default", "uid": "honest"}, "spec": {}}


def inspect(asked: dict[str, Any]) -> bool:
    """Whether the inspection service answers."""
    files = TlsFiles(Path(asked["ca"]), Path(asked["cert"]), Path(asked["key"]))
    try:
        with connected(Endpoint(f"{asked['host']}:{asked['grpc_port']}", files)) as stub:
            stub.GetVersion(pb.GetVersionRequest(), timeout=ANSWER_S)
    except ClickException:
        return False
    return True


def advise(asked: dict[str, Any]) -> bool:
    """Whether the extender judges a pod."""
    context = ssl.create_default_context(cafile=asked["ca"])
    context.load_cert_chain(asked["cert"], asked["key"])
    client = http.client.HTTPSConnection(
        asked["host"], asked["extender_port"], timeout=ANSWER_S, context=context
    )
    try:
        question = json.dumps({"Pod": POD, "NodeNames": asked["nodes"]})
        client.request("POST", "/filter", question, {"Content-Type": "application/json"})
        answer = json.loads(client.getresponse().read())
    except (OSError, ValueError, http.client.HTTPException):
        return False
    finally:
        client.close()
    return not answer["Error"]


def main(asked: dict[str, Any]) -> None:
    """Ask both services side by side, until nobody wants to know."""
    over = threading.Event()
    found: dict[str, list[tuple[float, bool]]] = {"grpc": [], "extender": []}

    def ask(name: str, question: Callable[[dict[str, Any]], bool]) -> None:
        while not over.is_set():
            put_s = time.monotonic()
            found[name].append((put_s, question(asked)))
            over.wait(EVERY_S)

    with beside(partial(ask, "grpc", inspect), partial(ask, "extender", advise), done=over):
        sys.stdin.read()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
