"""Builds kubelet, containerd and its shim once, for labs whose boards run pods.

`python -m tests.kube.kubelets` also puts them where `leadline lab up --kubelets` looks for them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from leadline_lab.kubelets import BINARIES, default_folder

from tests.kube.daemon import toolchain
from tests.kube.gobuild import built_kubelet, installed
from tests.kube.sources import ControlPlaneError

# kubelet asks for what Debian's containerd does not answer.
CONTAINERD = "github.com/containerd/containerd/v2/cmd"
VERSION = "v2.3.7"


def kubelet_binaries(environ: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """Return name -> path of the programs, building those that the cache lacks side by side.

    Raises ControlPlaneError where there is no Go, or it fails.
    """
    go = toolchain(environ)

    def program(name: str) -> Path:
        if name == "kubelet":
            return built_kubelet(go, environ)
        return installed(go, f"{CONTAINERD}/{name}", VERSION, environ)

    with ThreadPoolExecutor() as pool:
        return dict(zip(BINARIES, pool.map(program, BINARIES), strict=True))


def main() -> None:
    """Build, and link the programs into the folder that the lab looks into."""
    try:
        programs = kubelet_binaries()
    except ControlPlaneError as error:
        sys.exit(str(error))
    folder = default_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for name, program in programs.items():
        (folder / f"{name}.new").unlink(missing_ok=True)
        (folder / f"{name}.new").symlink_to(program)
        (folder / f"{name}.new").replace(folder / name)
    print(folder)


if __name__ == "__main__":
    main()
