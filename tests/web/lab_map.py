"""The map of a real cluster in a real browser.

Three boards on shaped links with a real agent on each, mosquitto, iperf3, a real API server, and
the controller, which serves the page. One board's link has 4 Mbit/s. A pod comes, and the
controller is restarted; what the page then shows is read from it. There is no kubelet, so pods do
not run. `python -m tests.web.lab_map [FOLDER]` prints the results, and puts pictures into the
folder; it needs root.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from leadline_lab import lab as labs
from leadline_lab.lab import AgentSettings, start_agents
from leadline_lab.spec import SERVER, BoardSpec, LabSpec
from playwright.sync_api import Page, expect

from tests.kube.api import Api
from tests.kube.control_plane import control_plane
from tests.kube.objects import node, pod
from tests.support.mosquitto import mosquitto
from tests.support.ports import free_port
from tests.system.daemons import Daemon
from tests.web.browser import PIXELS, chromium, page_of

THROTTLED = "n2"
BOARDS = tuple(
    BoardSpec(name, rate_mbps=4 if name == THROTTLED else 100) for name in ("n1", "n2", "n3")
)
_SPEC = LabSpec(boards=BOARDS)
_CLUSTER, _PORT = "lab", 1883
_MASTER_TAINT = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
_LONGEST_S = 500
# For each step; a busy machine may need that long.
_PATIENCE_MS = 150_000


@dataclass
class Played:
    """What the page showed."""

    bandwidths: dict[str, str] = field(default_factory=dict)  # each board's cell of the table
    counts: str = ""  # the buttons above the map
    links: str = ""  # the table of links
    slow_pixels: int = 0  # of the map, in the colour of the slowest links
    shown_after_s: float = 0.0  # from a pod's binding to its decision on the page
    pod_on: tuple[str, str] = ("", "")  # where the API server has it, and where the page has it
    after: tuple[str, str] = ("", "")  # the same of the pod that came after the restart
    runs: list[str] = field(default_factory=list)  # of the controller
    states: list[str] = field(default_factory=list)  # what the page said about the connection
    errors: list[str] = field(default_factory=list)  # on the browser's console, before the restart


def play(name: str, pictures: str = "") -> Played:
    """Build a lab of this name, act in its server's namespace, and remove the lab."""
    lab = labs.up(LabSpec(name, boards=BOARDS))
    try:
        start_agents(lab, AgentSettings(_CLUSTER, lab.address(), _PORT, interval_s=1))
        question = json.dumps([pictures])
        argv = lab.command(SERVER, [sys.executable, "-m", "tests.web.lab_map", question])
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_LONGEST_S)
        assert done.returncode == 0, done.stderr
        return Played(**json.loads(done.stdout))
    finally:
        labs.down(name)


def _act(pictures: str) -> Played:
    played = Played()
    expect.set_options(timeout=_PATIENCE_MS)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="leadline-map-")))
        address = _SPEC.address(SERVER)
        stack.enter_context(mosquitto(host=address, port=_PORT))
        api = Api(stack.enter_context(control_plane(folder)).kubeconfig)
        for board in BOARDS:
            api.add_node(node(board.name, "64", address=_SPEC.address(board.name)))
        api.add_node(node(SERVER, taints=[_MASTER_TAINT], address=address))
        web = f"127.0.0.1:{free_port()}"
        config = folder / "controller.toml"
        config.write_text(
            f'cluster = "{_CLUSTER}"\nwarm_up_s = 3\n'
            f'[broker]\nhost = "{address}"\nport = {_PORT}\nplaintext = true\n'
            f'[kubernetes]\nkubeconfig = "{api_file(folder)}"\n'
            f'[strategy]\nname = "netsched"\n[grpc]\naddress = "127.0.0.1:{free_port()}"\n'
            f'[web]\naddress = "{web}"\n'
            f'[probe]\nanchors = ["{SERVER}"]\ninterval_s = 2\nping_interval_s = 1\n'
            "duration_ms = 1000\nmax_bytes = 10000000\n"
            "link_time_share = 0.1\nbytes_per_day = 1000000000000\n"
        )
        controller = Daemon("leadline_controller", config, folder / "controller.log")
        stack.callback(controller.stop)
        controller.start()
        controller.wait_said(web)
        browser = stack.enter_context(chromium())
        page, errors = stack.enter_context(page_of(browser))
        page.set_default_timeout(_PATIENCE_MS)
        page.goto(f"http://{web}/")
        try:
            _watch(page, api, played, pictures)
            played.errors = list(errors)
            played.runs.append(_run(page))
            controller.stop()
            page.wait_for_selector("#state[data-state=waiting]")
            played.states.append(page.inner_text("#state"))
            controller.start()
            page.wait_for_selector("#state[data-state=live]")
            played.states.append(page.inner_text("#state"))
            played.runs.append(_run(page))
            played.after = _placed(page, api, "after")[0]
        except BaseException:
            print(page.inner_text("body"), *controller.lines()[-20:], sep="\n", file=sys.stderr)
            raise
    return played


def api_file(folder: Path) -> Path:
    """The control plane's kubeconfig in its folder."""
    return next(iter(folder.rglob("kubeconfig")))


def _run(page: Page) -> str:
    run: str = page.evaluate("async () => (await (await fetch('/api/overview')).json()).run")
    return run


def _watch(page: Page, api: Api, played: Played, pictures: str) -> None:
    page.wait_for_selector("#state[data-state=live]")
    played.states.append(page.inner_text("#state"))
    # Of a busy machine results are host-limited, but there is one of each board.
    for board in BOARDS:
        row = page.locator("#boards tbody tr").filter(has_text=board.name)
        expect(row).to_contain_text("Mbit/s")
    page.locator("#links-details summary").click()
    expect(page.locator("#links")).to_contain_text(" ms")
    # In one step, so that all is of one moment.
    for name, value in page.evaluate(_SHOWN).items():
        setattr(played, name, value)
    played.pod_on, played.shown_after_s = _placed(page, api, "web")
    if pictures:
        page.screenshot(path=f"{pictures}/lab.png")


_SHOWN = """() => {
    const rows = [...document.querySelectorAll('#boards tbody tr')].map((row) => row.cells);
    const text = (id) => document.getElementById(id).innerText;
    return {
        bandwidths: Object.fromEntries(rows.map((row) => [row[0].innerText, row[2].innerText])),
        counts: text('counts'),
        links: text('links'),
        slow_pixels: (PIXELS)('--level-0'),
    };
}""".replace("PIXELS", PIXELS)


def _placed(page: Page, api: Api, name: str) -> tuple[tuple[str, str], float]:
    """Create a pod. Returns where the API server and the page have it, and the seconds between."""
    path = "/api/v1/namespaces/default/pods"
    api.create(path, pod(name, cpu="1m", memory="1M"))
    bound = ""
    ends_s = time.monotonic() + _PATIENCE_MS / 1000
    while not bound and time.monotonic() < ends_s:
        bound = api.get(f"{path}/{name}")["spec"].get("nodeName", "")
        time.sleep(0.02)
    begin_s = time.monotonic()
    link = page.locator("#decision-list a", has_text=f"default/{name} → {bound}")
    expect(link).to_be_visible()
    took_s = time.monotonic() - begin_s
    expect(page.locator("#announce")).to_contain_text(f"default/{name} to")
    link.click()
    expect(page.locator("#decision-scores")).to_contain_text("(chosen)")
    chosen = page.locator("#decision-scores tbody th", has_text="(chosen)").inner_text()
    page.go_back()
    # The pod is on its board as well.
    page.goto(page.url.split("#")[0] + f"#/boards/{bound}")
    expect(page.locator("#board-pods")).to_contain_text(f"default/{name}")
    page.go_back()
    return (bound, chosen.removesuffix(" (chosen)")), took_s


def main() -> None:
    """Print the results; with a question of `play`, answer it as JSON."""
    argument = sys.argv[1] if len(sys.argv) > 1 else ""
    if argument.startswith("["):
        print(json.dumps(asdict(_act(*json.loads(argument)))))
    else:
        print(json.dumps(asdict(play("map", argument)), indent=2))


if __name__ == "__main__":
    main()
