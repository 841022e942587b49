"""One end of one iperf3 test, in a process of its own: `python -P iperf3_child.py JSON`.

The Python wrapper redirects the whole process's standard output and blocks in C, so it must
not run in the agent. This process says what iperf3 said, as iperf3's own JSON, and ends.
"""

import json
import os
import shutil
import signal
import sys
from typing import Any

LIBRARY = "libiperf.so.0"
# What the exit status says when there is neither the library nor the program (EX_UNAVAILABLE).
EXIT_ABSENT = 69


def main(argument: str) -> int:
    """Run the test that the JSON object describes; see Iperf3 for its keys."""
    spec = json.loads(argument)
    # Should the agent die, nobody else is left to end this. An alarm survives exec.
    signal.alarm(spec["limit_s"])
    import ctypes  # here, because the agent imports this module for its constants

    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return _become_program(spec)
    sys.stdout.write(_run_library(spec))
    return 0


def _run_library(spec: dict[str, Any]) -> str:
    import iperf3  # here, so that a board without libiperf does not pay for it

    # Given by name: the wrapper's own search runs a compiler where one is installed.
    if spec["role"] == "server":
        test = iperf3.Server(lib_name=LIBRARY)
    else:
        test = iperf3.Client(lib_name=LIBRARY)
        test.server_hostname = spec["host"]
        test.duration = spec["duration_s"]
        test.bandwidth = spec["bits_per_s"]
        test.num_streams = 1
    test.port = spec["port"]
    if spec["bind"]:
        test.bind_address = spec["bind"]
    return str(test.run().text)


def _become_program(spec: dict[str, Any]) -> int:
    program = shutil.which("iperf3")
    if program is None:
        return EXIT_ABSENT
    os.execv(program, arguments(spec))  # noqa: S606 - no shell is wanted
    return EXIT_ABSENT


def arguments(spec: dict[str, Any]) -> list[str]:
    """The same test for the program iperf3."""
    common = ["iperf3", "--json", "--port", str(spec["port"])]
    if spec["bind"]:
        common += ["--bind", spec["bind"]]
    if spec["role"] == "server":
        return [*common, "--server", "--one-off"]
    return [
        *(*common, "--client", spec["host"], "--parallel", "1"),
        *("--time", str(spec["duration_s"]), "--bitrate", str(spec["bits_per_s"])),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
