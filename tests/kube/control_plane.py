"""Starts the real Kubernetes control plane that the cluster tests talk to.

    with control_plane() as plane:
        ... plane.kubeconfig ...

Run as `python -m tests.kube.control_plane find|build|run` it says where the control plane comes
from, builds it ahead of the tests, or keeps one running for a person.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.kube.gobuild import built, installed
from tests.kube.sources import Binaries, Cluster, ControlPlaneError, Source, find_source
from tests.support.processes import end

__all__ = ["ControlPlane", "ControlPlaneError", "control_plane"]

# Long, because `.ci/run` computes the papers' experiments on the same two cores at that time.
START_S = 300.0
STOP_S = 30.0
POLL_S = 0.05
LOG_LINES = 3
KINE = ("github.com/k3s-io/kine", "v0.17.5")
ENDING = {signal.SIGINT, signal.SIGTERM}


class ControlPlane:
    """A Kubernetes API to test against; `kubeconfig` has every right in it.

    `pid` is None where the cluster is not ours to stop, and while the control plane is stopped.
    """

    def __init__(self, kubeconfig: Path, command: Sequence[str] | None = None) -> None:
        """Describe a control plane; `command` starts one that writes `kubeconfig` when ready."""
        self.kubeconfig = kubeconfig
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def pid(self) -> int | None:
        """The process that holds the whole control plane."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the servers and wait until they are ready; a no-op on somebody else's cluster."""
        if self._command is None or self._process:
            return
        # What an earlier start left would pass for the sign that this one is ready.
        self.kubeconfig.unlink(missing_ok=True)
        folder = self.kubeconfig.parent
        arguments = ["--dir", str(folder), "--port", str(self._port), "--until-stdin-closes"]
        with (folder / "control-plane.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                # Ctrl-C is for the test run, which still needs the API to clean up.
                start_new_session=True,
            )
        try:
            self._wait_until_ready(self._process, Path(log.name))
        except BaseException:
            self.stop()
            raise
        server = json.loads(self.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        self._port = urlsplit(server).port or 0

    def stop(self) -> None:
        """End the servers and wait until they are gone; a no-op on somebody else's cluster."""
        process, self._process = self._process, None
        if process is None:
            return
        end(process, STOP_S)
        if process.stdin:
            process.stdin.close()

    def restart(self) -> None:
        """Stop and start with the same data, address and credentials."""
        if self._command is None:
            raise ControlPlaneError("the tests may not restart the cluster that they were given")
        self.stop()
        self.start()

    def _wait_until_ready(self, process: subprocess.Popen[bytes], log: Path) -> None:
        deadline = time.monotonic() + START_S
        while not self.kubeconfig.exists():
            ended = process.poll() is not None
            if ended or time.monotonic() > deadline:
                what = "ended while starting" if ended else f"was not ready within {START_S:.0f} s"
                last = " | ".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
                raise ControlPlaneError(f"the control plane {what}, see {log}: {last}")
            time.sleep(POLL_S)


@contextmanager
def control_plane(
    folder: Path | None = None, environ: Mapping[str, str] = os.environ
) -> Iterator[ControlPlane]:
    """Yield a running control plane that keeps its files in `folder` (None: a temporary one).

    Raises ControlPlaneError where none can be found, built or started.
    """
    source = find_source(environ)
    with ExitStack() as cleanup:
        if folder is None:
            folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="leadline-")))
        if isinstance(source, Cluster):
            plane = ControlPlane(source.kubeconfig)
        else:
            plane = ControlPlane(folder / "kubeconfig", command(source, environ))
        cleanup.callback(plane.stop)
        plane.start()
        yield plane


def command(source: Source, environ: Mapping[str, str]) -> list[str]:
    """Return the command that runs the control plane from `source`, building it if need be."""
    if isinstance(source, Cluster):
        raise ControlPlaneError("LEADLINE_TEST_KUBECONFIG is set: there is nothing to build or run")
    if isinstance(source, Binaries):
        script = str(Path(__file__).with_name("released.py"))
        binaries = ["--etcd", str(source.etcd), "--kube-apiserver", str(source.kube_apiserver)]
        return [sys.executable, script, *binaries]
    store = kine(source.go, environ)
    return [str(built(source.go, environ)), "apiserver", *(["--kine", str(store)] if store else [])]


def kine(go: Path, environ: Mapping[str, str]) -> Path | None:
    """The program that keeps the data in place of etcd, if LEADLINE_TEST_STORE names it."""
    match environ.get("LEADLINE_TEST_STORE") or "etcd":
        case "etcd":
            return None
        case "kine":
            return installed(go, *KINE, environ, with_c=True)
        case other:
            raise ControlPlaneError(f"LEADLINE_TEST_STORE: expected etcd or kine, got {other!r}")


def main() -> None:
    """Serve the three subcommands; exit 1 with one line where there is no control plane."""
    parser = argparse.ArgumentParser(prog="control_plane", description=main.__doc__)
    parser.add_argument("action", choices=["find", "build", "run"])
    action = parser.parse_args().action
    try:
        if action == "run":
            _run()
        else:
            source = find_source(os.environ)
            if action == "build" and not isinstance(source, Cluster):
                command(source, os.environ)
            print(source)
    except ControlPlaneError as error:
        sys.exit(str(error))


def _run() -> None:
    with control_plane() as plane:
        # Only now, because the servers would inherit the mask.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        print(plane.kubeconfig, flush=True)
        signal.sigwait(ENDING)


if __name__ == "__main__":
    main()
