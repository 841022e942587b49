"""Images for a lab's registry, made of layers of a chosen size and a static busybox."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from leadline_lab import image_builder
from leadline_lab.image_builder import Layer
from leadline_lab.kubelets import registry_address, registry_connection
from leadline_lab.lab import Lab

HTTP_PORT = 8080


def until_told(command: str) -> tuple[str, ...]:
    """A container's command that runs this one of busybox, and ends at once when it is told to.

    Without the shell it would be process 1, which ignores SIGTERM, for a pod's 30 s of grace.
    """
    return ("/bin/busybox", "sh", "-c", f"trap 'exit 0' TERM; /bin/busybox {command} & wait")


# Serves the files of the image, such as /bin/busybox and /data/<n>, and programs in /cgi-bin.
HTTPD = until_told(f"httpd -f -p {HTTP_PORT} -h /")
SLEEP = until_told("sleep 2147483647")


def busybox_layer() -> Layer:
    """The layer of 1 MB that every image begins with, and that boards have from their first pod."""
    return image_builder.layer({"bin/busybox": Path(shutil.which("busybox") or "").read_bytes()})


def random_layer(mb: float, seed: int) -> Layer:
    """A layer that compression leaves at `mb` megabytes (10^6); the same seed is the same layer.

    It has one file, /data/<seed>.
    """
    return image_builder.layer({f"data/{seed}": random.Random(seed).randbytes(round(mb * 1e6))})


def push_image(
    lab: Lab, name: str, layers: Sequence[Layer] = (), command: Sequence[str] = HTTPD
) -> str:
    """Push busybox and these layers as `name`:1 and return the image's name for a pod."""
    with closing(registry_connection(lab)) as connection:
        image_builder.push(connection, name, "1", [busybox_layer(), *layers], command)
    return f"{registry_address(lab)}/{name}:1"
