"""The process of the demo, of which demo.py is the program. In a lab it is in the server's network
namespace, to reach the broker. The command that starts it does not import a controller, which takes
a second.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

READY = "the controller answers at "


@dataclass(frozen=True)
class Demo:
    """What the demo's process does."""

    spec: Mapping[str, Any]  # of the lab; see LabSpec.to_mapping
    broker: tuple[str, int] | None = None  # None: the boards are played
    serve: str = "127.0.0.1:0"  # where `leadline` is answered
    tells: bool = True  # it prints the boards and the decisions, and lets the pods send their data
    keeps: bool = False  # the controller goes on until it is interrupted
    # An open socket that listens where browsers find the map, which may be in another network
    # namespace.
    web_fd: int | None = None

    def command(self) -> list[str]:
        """The command line of the process."""
        return [sys.executable, "-m", "leadline_lab.demo", json.dumps(asdict(self))]
