"""The client of one iperf3 test, in its own process: `python -P iperf3_child.py JSON`.

The Python wrapper redirects the standard output of the whole process and blocks in C, so it must
not run in the agent. This process prints a line end when it is ready, begins when it is sent a
byte, prints iperf3's JSON output and exits.
"""

import json
import os
import resource
import signal
import sys
from typing import Any

LIBRARY = "libiperf.so.0"
# Exit status when neither the library nor the program is installed (EX_UNAVAILABLE).
EXIT_ABSENT = 69
# libiperf trusts its server. A test of one stream needs about half of these limits, which survive
# exec.
LIMITS = {
    resource.RLIMIT_DATA: 64 << 20,
    resource.RLIMIT_FSIZE: 1 << 20,
    resource.RLIMIT_CORE: 0,
}
# The server can make it open one stream after another. One test needs the control connection, a
# stream, the file behind the stream's buffer and /dev/urandom; a second stream would need two more
# descriptors.
DESCRIPTORS = 5


def main(argument: str) -> int:
    """Run the test that the JSON object describes; Iperf3 has its keys."""
    spec = json.loads(argument)
    # If the agent dies, the alarm ends this process. It survives exec.
    signal.alarm(spec["limit_s"])
    for limit, value in {**LIMITS, resource.RLIMIT_CPU: spec["limit_s"]}.items():
        _limit(limit, value)
    import ctypes  # here, because the agent imports this module for its constants

    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        library = None
    if not hasattr(library, "iperf_set_test_bytes"):
        return _become_program(spec)
    sys.stdout.write(_run_library(spec))
    return 0


def _limit(what: int, value: int) -> None:
    hard = resource.getrlimit(what)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(what, (value, value))


def _run_library(spec: dict[str, Any]) -> str:
    from ctypes import c_uint64, c_void_p

    import iperf3  # here, so that a board without libiperf does not pay for it

    # By name, because the wrapper's search runs a compiler where one is installed.
    test = iperf3.Client(lib_name=LIBRARY)
    test.server_hostname = spec["host"]
    test.duration = 0  # the bytes end it
    # The wrapper has no setter for it.
    test.lib.iperf_set_test_bytes(c_void_p(test._test), c_uint64(spec["bytes"]))
    test.blksize = spec["block_bytes"]
    test.num_streams = 1
    test.port = spec["port"]
    first_free = os.dup(0)
    os.close(first_free)
    _limit(resource.RLIMIT_NOFILE, first_free + DESCRIPTORS)
    if spec["bind"]:
        test.bind_address = spec["bind"]
    _wait_for_start()
    return str(test.run().text)


def _wait_for_start() -> None:
    """So that the agent's clock and its count of bytes begin exactly with the test."""
    os.write(1, b"\n")
    if not os.read(0, 1):
        sys.exit(1)  # the agent is gone


def _become_program(spec: dict[str, Any]) -> int:
    import shutil  # here, because the agent imports this module for its constants

    program = shutil.which("iperf3")
    if program is None:
        return EXIT_ABSENT
    _limit(resource.RLIMIT_NOFILE, 3 + DESCRIPTORS)  # all but the first three are closed on exec
    _wait_for_start()
    os.execv(program, arguments(spec))  # noqa: S606 - no shell is wanted
    return EXIT_ABSENT


def arguments(spec: dict[str, Any]) -> list[str]:
    """The same test for the program iperf3."""
    common = ["iperf3", "--json", "--port", str(spec["port"])]
    if spec["bind"]:
        common += ["--bind", spec["bind"]]
    return [
        *(*common, "--client", spec["host"], "--parallel", "1"),
        *("--bytes", str(spec["bytes"]), "--length", str(spec["block_bytes"])),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
