"""One attacker with a few sockets: the standard library alone, so that a board can run it.

`python3 - JSON < intruder.py` opens what the JSON asks for, prints `open N`, and keeps it open
until `hold_s` are over or the file `until` exists. It then prints JSON: how many
connections the server has kept, or what was answered. `attack` is one of ATTACKS; `ca`, `cert`
and `key` are PEM files, without which the connections speak no TLS.
"""

from __future__ import annotations

import http.client
import json
import resource
import selectors
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES = 9
DATA, HEADERS, SETTINGS, PING = 0, 1, 4, 6
END_STREAM, END_HEADERS, ACK = 1, 4, 1
INITIAL_WINDOW_SIZE = 4
CONNECT_S = 10.0
LOOK_S = 0.5
ANSWER_S = 60.0
NUMBER = b"#" * 8


def connect(asked: dict[str, Any], protocol: str) -> socket.socket:
    """A connection, with TLS where a certificate is given. Raises OSError."""
    plain = socket.create_connection((asked["host"], asked["port"]), CONNECT_S)
    if "ca" not in asked:
        return plain
    context = ssl.create_default_context(cafile=asked["ca"])
    context.load_cert_chain(asked["cert"], asked["key"])
    context.set_alpn_protocols([protocol])
    return context.wrap_socket(plain, server_hostname=asked["host"])


def opened(asked: dict[str, Any], protocol: str, count: int) -> list[socket.socket]:
    """As many connections as are accepted, `count` at most."""
    found = []
    for _ in range(count):
        try:
            found.append(connect(asked, protocol))
        except OSError:
            continue
    return found


def silent(asked: dict[str, Any]) -> dict[str, Any]:
    """Connections that never send a byte."""
    asked = {name: asked[name] for name in asked if name != "ca"}
    return held(opened(asked, "", asked["count"]), asked)


def idle(asked: dict[str, Any]) -> dict[str, Any]:
    """HTTP connections that ask one small question each and keep the connection."""
    sockets = opened(asked, "http/1.1", asked["count"])
    for each in sockets:
        try:
            each.sendall(b"GET /healthz HTTP/1.1\r\nHost: leadline\r\n\r\n")
        except OSError:
            continue
    return held(sockets, asked)


def calls(asked: dict[str, Any]) -> dict[str, Any]:
    """Calls of the gRPC method `path`, `per_connection` at a time. With `window` 0 the server
    may send no byte of its answers."""
    count, each = asked["count"], asked["per_connection"]
    sockets = opened(asked, "h2", -(-count // each))
    for number, connection in enumerate(sockets):
        try:
            connection.sendall(request(asked, min(each, count - number * each)))
        except OSError:
            continue
    return held(sockets, asked, answer_h2)


def request(asked: dict[str, Any], count: int) -> bytes:
    """The preface, the settings, and `count` calls without any argument."""
    window = INITIAL_WINDOW_SIZE.to_bytes(2, "big") + asked["window"].to_bytes(4, "big")
    sent = [PREFACE, frame(SETTINGS, 0, 0, window)]
    fields = {
        ":method": "POST",
        ":scheme": "https" if "ca" in asked else "http",
        ":path": asked["path"],
        ":authority": asked["host"],
        "te": "trailers",
        "content-type": "application/grpc",
    }
    # HPACK without an index and without Huffman: a zero, then name and value with their lengths.
    head = b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in fields.items()
    )
    for number in range(count):
        stream = 2 * number + 1
        sent.append(frame(HEADERS, END_HEADERS, stream, head))
        sent.append(frame(DATA, END_STREAM, stream, bytes(5)))
    return b"".join(sent)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One frame of HTTP/2."""
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


def answer_h2(received: bytearray) -> bytes:
    """What a client owes for the frames that came; they are taken out of `received`."""
    owed = b""
    while len(received) >= HEAD_BYTES:
        length, kind, flags = int.from_bytes(received[:3], "big"), received[3], received[4]
        if len(received) < HEAD_BYTES + length:
            break
        payload = bytes(received[HEAD_BYTES : HEAD_BYTES + length])
        del received[: HEAD_BYTES + length]
        if kind == SETTINGS and not flags & ACK:
            owed += frame(SETTINGS, ACK, 0, b"")
        elif kind == PING and not flags & ACK:
            owed += frame(PING, ACK, 0, payload)
    return owed


def nothing(received: bytearray) -> bytes:
    """The answer of a client that is silent."""
    received.clear()
    return b""


def held(
    sockets: list[socket.socket],
    asked: dict[str, Any],
    answer: Callable[[bytearray], bytes] = nothing,
) -> dict[str, Any]:
    """Keep the connections until it is over, and count those that the server kept."""
    print(f"open {len(sockets)}", flush=True)
    deadline_s = time.monotonic() + asked["hold_s"]
    kept, until = 0, Path(asked.get("until", "/nowhere"))
    with selectors.DefaultSelector() as ready:
        for each in sockets:
            each.settimeout(5)
            ready.register(each, selectors.EVENT_READ, bytearray())
            kept += 1
        while time.monotonic() < deadline_s and not until.exists():
            for key, _ in ready.select(LOOK_S) if kept else ():
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                if not taken(connection, key.data, answer):
                    ready.unregister(connection)
                    connection.close()
                    kept -= 1
            if not kept:
                time.sleep(LOOK_S)
    for each in sockets:
        each.close()
    return {"opened": len(sockets), "kept": kept}


def taken(
    connection: socket.socket, received: bytearray, answer: Callable[[bytearray], bytes]
) -> bool:
    """Read what came and answer it; False when the server has closed."""
    try:
        if not (data := connection.recv(1 << 16)):
            return False
        received += data
        if owed := answer(received):
            connection.sendall(owed)
    except ssl.SSLWantReadError:
        return True
    except OSError:
        return False
    return True


def questions(asked: dict[str, Any]) -> dict[str, Any]:
    """`count` questions at once to the extender's `path`, each of `bytes` bytes at most: `kind`
    objects is a pod of empty objects, nodes is a cluster of nodes of `node_bytes` bytes each."""
    answers: list[dict[str, Any]] = []
    # Made first, because the server gives a request little time to arrive.
    body, items = question(asked)
    print(f"open {asked['count']}", flush=True)
    threads = [
        threading.Thread(target=lambda: answers.append(answered(asked, body, items)))
        for _ in range(asked["count"])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"answers": answers}


def answered(asked: dict[str, Any], body: bytes, items: int) -> dict[str, Any]:
    """Put a question: the answer's status, how many nodes passed of those asked, its error."""
    connection: http.client.HTTPConnection
    if "ca" in asked:
        context = ssl.create_default_context(cafile=asked["ca"])
        context.load_cert_chain(asked["cert"], asked["key"])
        connection = http.client.HTTPSConnection(
            asked["host"], asked["port"], timeout=ANSWER_S, context=context
        )
    else:
        connection = http.client.HTTPConnection(asked["host"], asked["port"], timeout=ANSWER_S)
    try:
        connection.putrequest("POST", asked["path"])
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders()
        with suppress(OSError):  # cut off in the middle: there may be an answer all the same
            connection.send(body)
        answer = connection.getresponse()
        parsed = json.loads(answer.read())
    except (OSError, ValueError, http.client.HTTPException) as error:
        return {"status": 0, "error": f"{type(error).__name__}: {error}"}
    finally:
        connection.close()
    passed = len((parsed.get("Nodes") or {}).get("items") or [])
    return {"status": answer.status, "passed": passed, "asked": items, "error": parsed["Error"]}


def question(asked: dict[str, Any]) -> tuple[bytes, int]:
    """A request of at most this many bytes, and its number of items."""
    begin, item, end = parts(asked)
    count = (asked["bytes"] - len(begin) - len(end)) // (len(item) + 1)
    if NUMBER in item:
        items = [item.replace(NUMBER, b"%08d" % number) for number in range(count)]
    else:
        items = [item] * count
    return begin + b",".join(items) + end, count


def parts(asked: dict[str, Any]) -> tuple[bytes, bytes, bytes]:
    """A question's begin, the item that it repeats (NUMBER in it is its number), and its end."""
    pod = {"metadata": {"name": "asked", "namespace": "default", "uid": "asked"}, "spec": {}}
    if asked["kind"] == "objects":
        head = json.dumps({"Pod": {**pod, "x": []}})[:-3]
        return head.encode(), b"{}", b"]}}"
    notes = {"kubelet": ""}
    node = {
        "metadata": {"name": f"node-{NUMBER.decode()}", "annotations": notes},
        "status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "110"}},
    }
    notes["kubelet"] = "x" * (asked["node_bytes"] - len(json.dumps(node)))
    head = json.dumps({"Pod": pod, "Nodes": {"items": []}})[:-3]
    return head.encode(), json.dumps(node).encode(), b"]}}"


ATTACKS = {"silent": silent, "idle": idle, "calls": calls, "questions": questions}


def main(asked: dict[str, Any]) -> None:
    """Attack, and print the outcome."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 1 << 16), hard))
    print(json.dumps(ATTACKS[asked["attack"]](asked)), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
