"""Tries what a client may do at the broker; it runs on a machine of the testbed with a key there.

`python - JSON` prints JSON: "answers", the broker's answer to each message by topic; "heard", the
topics of the received messages up to `until`; "failure", why there was no connection.
"""

import json
import os
import ssl
import sys
import threading
from pathlib import Path
from typing import Any

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion

TIMEOUT_S = 30.0


class MqttAttempt:
    """Connects with `keys`, subscribes, publishes empty messages and listens; leaves its `will`."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.answers: dict[str, str] = {}
        self.heard: list[str] = []
        self.failure = ""
        self._request = request
        self._done = threading.Event()
        self._waiting: dict[int, str] = {}
        self._client = client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=request["id"],
            protocol=paho.MQTTv5,
            reconnect_on_failure=False,
        )
        context = ssl.create_default_context(cafile=request["keys"] + "/ca.pem")
        if request.get("certificate", True):
            context.load_cert_chain(request["keys"] + "/cert.pem", request["keys"] + "/key.pem")
        client.tls_set_context(context)
        if "will" in request:
            client.will_set(request["will"], b"", 1, False)
        client.on_connect = self._on_connect
        client.on_publish = self._on_publish
        client.on_message = self._on_message
        client.on_subscribe = self._on_subscribe
        client.on_disconnect = self._on_disconnect

    def run(self) -> None:
        """Run until all is done or the time is over."""
        try:
            self._client.connect(self._request["host"], self._request.get("port", 8883))
            self._client.loop_start()
            if not self._done.wait(TIMEOUT_S):
                self.failure = "no answer in time"
        except OSError as error:
            self.failure = str(error)

    def _on_connect(self, client: paho.Client, *_: Any) -> None:
        if self._request.get("subscribe"):
            client.subscribe([(topic, 1) for topic in self._request["subscribe"]])
        for topic in self._request.get("publish", []):
            sent = client.publish(topic, b"", 1, self._request.get("retain", False))
            self._waiting[sent.mid] = topic
        self._check_done()

    def _on_publish(self, _client: Any, _data: Any, number: int, code: Any, _: Any) -> None:
        self.answers[self._waiting.pop(number)] = str(code)
        self._check_done()

    def _on_message(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        self.heard.append(message.topic)
        if message.topic == self._request.get("until"):
            self._done.set()

    def _on_subscribe(self, *_: Any) -> None:
        if "ready" in self._request:
            Path(self._request["ready"]).touch()

    def _on_disconnect(self, _client: Any, _data: Any, _flags: Any, code: Any, _: Any) -> None:
        self.failure = str(code)
        self._done.set()

    def _check_done(self) -> None:
        if not (self._waiting or "until" in self._request):
            self._done.set()


if __name__ == "__main__":
    attempt = MqttAttempt(json.loads(sys.argv[1]))
    attempt.run()
    result = {"answers": attempt.answers, "heard": attempt.heard, "failure": attempt.failure}
    print(json.dumps(result), flush=True)
    os._exit(0)  # without a DISCONNECT, so that the broker publishes the will
