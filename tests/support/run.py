"""A controller to work against: with the map, on a local API server, and 20 played boards.

    python -m tests.support.run

Boards report over a real broker and follow their leases, so that links and bandwidths are known;
KWOK plays their kubelets, so that pods run at once. Enter starts the controller again, with the
code as it is then; Ctrl-C ends everything.
"""

import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

from tests.kube.api import BulkApi
from tests.kube.control_plane import control_plane
from tests.kube.kwok import kwok, many_nodes, side_by_side
from tests.kube.objects import pod
from tests.support.boards import CLUSTER, address_of
from tests.support.mosquitto import mosquitto
from tests.support.played_boards import LINK_MBPS, playing
from tests.support.ports import free_port
from tests.system.daemons import Daemon, eventually

BOARDS = 20
PODS = 40
LABELS = {"leadline.dev/bandwidth-mbps": str(LINK_MBPS)}


def main() -> None:
    """Start all parts, say where they are, and wait."""
    with ExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="leadline-run-")))
        plane = cleanup.enter_context(control_plane())
        broker = cleanup.enter_context(mosquitto())
        grpc, page = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        config = folder / "controller.toml"
        config.write_text(
            f'cluster = "{CLUSTER}"\n'
            f'[broker]\nhost = "{broker.host}"\nport = {broker.port}\n'
            f'[kubernetes]\nkubeconfig = "{plane.kubeconfig}"\n'
            '[strategy]\nname = "netsched"\n'
            '[probe]\nnetworks = ["10.99.0.0/16"]\n'
            "[images]\nenabled = false\n"  # nobody pulls any
            f'[grpc]\naddress = "{grpc}"\n[web]\naddress = "{page}"\n'
        )
        controller = Daemon("leadline_controller", config, folder / "controller.log")
        cleanup.callback(controller.stop)
        controller.start()
        kubelets = cleanup.enter_context(kwok(plane))
        nodes = many_nodes(BOARDS, "board", labels=LABELS)
        kubelets.add_nodes(nodes)
        names = [node["metadata"]["name"] for node in nodes]
        addresses = {name: address_of(at) for at, name in enumerate(names)}
        cleanup.enter_context(playing(broker, addresses))
        api = BulkApi(plane.kubeconfig)
        side_by_side(
            lambda at: api.create(
                "/api/v1/namespaces/default/pods",
                pod(f"web-{at}", cpu="100m", scheduler="leadline"),
            ),
            range(PODS),
        )
        eventually(lambda: _answers(page), bool, f"the map is at {page}")
        print(
            f"the map:      http://{page}\n"
            f"the CLI:      export LEADLINE_ADDRESS={grpc}; .venv/bin/leadline placements\n"
            f"the cluster:  {plane.kubeconfig}\n"
            f"the settings: {config}\n"
            f"the log:      tail -f {folder / 'controller.log'}\n"
            "Enter starts the controller again, Ctrl-C ends everything."
        )
        for _ in sys.stdin:
            controller.stop()
            controller.start()
        threading.Event().wait()


def _answers(page: str) -> bool:
    try:
        with urlopen(f"http://{page}"):
            return True
    except OSError:
        return False


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print()
