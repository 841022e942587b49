"""A controller that serves the real kube-scheduler as an extender, over TLS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.kube.control_plane import ControlPlane
from tests.kube.daemon import Daemon as Part
from tests.kube.scheduler import kube_scheduler
from tests.support.certificates import Authority, Certificate
from tests.support.ports import free_port
from tests.system.daemons import Daemon, leadline


@dataclass(frozen=True)
class Extending:
    """The controller's process, which schedules nothing itself."""

    plane: ControlPlane
    controller: Daemon
    address: str  # of the extender
    caller: Certificate | None  # kube-scheduler's TLS files, None without TLS
    inspected: str  # the address of the gRPC API

    @contextmanager
    def scheduler(self, *options: str, **limits: Any) -> Iterator[Part]:
        """kube-scheduler with the file that `leadline kube extender-config` prints; `limits` as
        kube_scheduler takes them."""
        shown: Sequence[str] = ("--address", f"http://{self.address}")
        if self.caller is not None:
            shown = (
                *("--address", f"https://{self.address}", "--ca", str(self.caller.ca_file)),
                *("--cert", str(self.caller.cert_file), "--key", str(self.caller.key_file)),
            )
        printed = leadline(
            *("kube", "extender-config", *shown, "--kubeconfig", str(self.plane.kubeconfig)),
            *(option for option in options if option),
        )
        assert (printed.returncode, printed.stderr) == (0, "")
        config: Mapping[str, Any] = yaml.safe_load(printed.stdout)
        with kube_scheduler(self.plane, config, **limits) as running:
            yield running


@contextmanager
def extending(
    plane: ControlPlane, folder: Path, options: str = "{}", *, tls: bool = True
) -> Iterator[Extending]:
    """Yield a running controller with dacs and these options (TOML), without a broker. Without
    `tls` every process of this machine may ask, and none may bind pods."""
    authority = Authority(folder / "pki")
    server, caller = authority.server("127.0.0.1"), authority.client("kube-scheduler")
    address, inspected = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    config = folder / "controller.toml"
    secured = "bind = true\n" + server.toml("extender.tls")
    config.write_text(
        f"warm_up_s = 0\nbroker.port = {free_port()}\n"
        f'[kubernetes]\nkubeconfig = "{plane.kubeconfig}"\nstandalone = false\n'
        f'[strategy]\nname = "dacs"\noptions = {options}\n'
        f'[grpc]\naddress = "{inspected}"\n'
        f'[extender]\naddress = "{address}"\n{secured if tls else ""}'
    )
    controller = Daemon("leadline_controller", config, folder / "controller.log")
    try:
        controller.start()
        controller.wait_said("answering kube-scheduler")
        yield Extending(plane, controller, address, caller if tls else None, inspected)
    finally:
        controller.stop()
