"""A containerd and a kubelet on every board of a lab, so that pods really run.

The boards' daemons see the lab's network, and folders of their own as ``/var`` and ``/run``: so
each has containerd's and kubelet's usual paths, and all mounts end with the last of its processes.
The boards pull from a registry on the lab's server. The pods of a board have a subnet, and routes
between the boards, so that pods, boards and server reach each other over the shaped links.
"""

import ipaddress
import json
import os
import shlex
import shutil
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from leadline_controller.parsing.documents import read_document
from leadline_controller.parsing.fields import FieldError

from leadline_lab import cgroups, image_builder, network
from leadline_lab.errors import LabError
from leadline_lab.lab import Lab
from leadline_lab.processes import Process, wait_listening, wait_logged
from leadline_lab.spec import SERVER, LabSpec

BINARIES = ("kubelet", "containerd", "containerd-shim-runc-v2")
REGISTRY_PORT = 5000
API_PORT = 6443
LABEL = "leadline.dev/lab"
_PACKAGES = {
    "runc": "runc",
    "docker-registry": "docker-registry",
    "socat": "socat",
    "busybox": "busybox-static",
    "nsenter": "util-linux",
}
_CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
_POD_NETWORKS = (ipaddress.IPv4Network("10.244.0.0/16"), ipaddress.IPv4Network("10.245.0.0/16"))
_PAUSE = "leadline/pause"
_HEALTH_PORT = 10248
_START_S = 60.0
# A board's own folder, as its daemons see it.
_INSIDE = Path("/run/leadline")
# kubelet sets these for the whole machine unless it finds them so. It is shown these values.
_SYSCTLS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
_NO_EVICTION = dict.fromkeys(
    (
        "memory.available",
        "nodefs.available",
        "nodefs.inodesFree",
        "imagefs.available",
        "imagefs.inodesFree",
    ),
    "0%",
)


def default_folder() -> Path:
    """Where ``make kubelets`` of Leadline's source puts the programs that Debian does not have."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "leadline/kubelets")


def find_binaries(folder: Path | None) -> dict[str, Path]:
    """Kubelet, containerd and its shim from this folder, or else from the default one and PATH.

    Raises LabError if one of them, or a program that they need, is missing.
    """
    path = str(folder) if folder else f"{default_folder()}:{os.environ.get('PATH', os.defpath)}"
    found = {name: shutil.which(name, path=path) for name in BINARIES}
    if missing := [name for name, place in found.items() if place is None]:
        raise LabError(
            f"the lab needs {', '.join(missing)}: run make kubelets in Leadline's source, or give "
            "the folder with --kubelet-binaries"
        )
    packages = [package for tool, package in _PACKAGES.items() if shutil.which(tool) is None]
    if not any((each / "bridge").exists() for each in _CNI_FOLDERS):
        packages.append("containernetworking-plugins")
    if packages:
        raise LabError(f"the lab's kubelets need more: install {', '.join(packages)}")
    return {name: Path(place).resolve() for name, place in found.items() if place}


def registry_address(lab: Lab) -> str:
    """``host:port`` of the lab's registry, with which names of its images begin."""
    return f"{lab.address()}:{REGISTRY_PORT}"


def pod_subnet(spec: LabSpec, board: str) -> ipaddress.IPv4Network:
    """The addresses of a board's pods."""
    pods = next(each for each in _POD_NETWORKS if not each.overlaps(spec.subnet))
    number = [each.name for each in spec.boards].index(board) + 1
    return ipaddress.IPv4Network((int(pods.network_address) + 256 * number, 24))


def start_kubelets(
    lab: Lab,
    kubeconfig: Path,
    binaries: Mapping[str, Path],
    config: Mapping[str, Mapping[str, Any]] | None = None,
) -> Path:
    """Let every board of the lab join a cluster, with the rights of this kubeconfig.

    ``binaries`` are those of :func:`find_binaries`. ``config``: board -> fields of its
    KubeletConfiguration, such as maxPods. Call it in the machine's own network namespace. Returns a
    kubeconfig for the lab's hosts once all kubelets run; the boards are Ready some seconds later.
    Raises :class:`LabError`.
    """
    login, server = _login(kubeconfig, f"https://{lab.address()}:{API_PORT}")
    lab.data.mkdir(mode=0o700, parents=True)
    _forward_api(lab, server)
    _start_registry(lab)
    _route_pods(lab)
    boards = {each.name: lab.data / each.name for each in lab.spec.boards}
    daemons = {board: cgroups.make(lab.spec.name, board) for board in boards}
    containerds = {}
    for board, root in boards.items():
        _write_files(lab, board, root, login, (config or {}).get(board, {}))
        enter = _write(root / "enter.sh", _enter_script(root, daemons[board], binaries))
        containerds[board] = lab.start_command(
            board,
            f"containerd-{board}",
            [
                *("nsenter", f"--net=/run/netns/{lab.spec.namespace(board)}"),
                *("unshare", "--mount", "--propagation=private", "sh", str(enter)),
                *("containerd", f"--config={_INSIDE}/containerd.toml"),
            ],
        )
    kubelets = []
    for board, containerd in containerds.items():
        wait_logged(containerd, "containerd successfully booted", _START_S)
        kubelets.append(_start_kubelet(lab, board, containerd, daemons[board]))
    for kubelet in kubelets:
        wait_listening(kubelet, _HEALTH_PORT, _START_S)
    return _write(lab.directory / "kubeconfig", login)


def _start_kubelet(lab: Lab, board: str, containerd: Process, cgroup: Path) -> Process:
    flags = [
        f"--config={_INSIDE}/kubelet.json",
        f"--kubeconfig={_INSIDE}/kubeconfig",
        f"--hostname-override={board}",
        f"--node-ip={lab.address(board)}",
        f"--node-labels={LABEL}={lab.spec.name}",
    ]
    return lab.start_command(
        board,
        f"kubelet-{board}",
        [
            *("nsenter", f"--net=/run/netns/{lab.spec.namespace(board)}"),
            *(f"--mount=/proc/{containerd.pid}/ns/mnt", "sh", "-c"),
            f'echo 0 >{cgroup}/cgroup.procs && exec "$@"',
            *("sh", f"{_INSIDE}/bin/kubelet", *flags),
        ],
    )


def _login(kubeconfig: Path, server: str) -> tuple[str, str]:
    """The kubeconfig with another server, and ``host:port`` of its own.

    The server's certificate is still verified, by the name that it has.
    """
    try:
        config: Any = read_document(kubeconfig)
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = dict(_named(config["clusters"], context["cluster"])["cluster"])
        user = dict(_named(config["users"], context["user"])["user"])
        url = urlsplit(cluster["server"])
        host, port = url.hostname or "", url.port or 443
    except FieldError as error:
        raise LabError(f"{kubeconfig}: {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise LabError(f"{kubeconfig}: is no kubeconfig with a current context: {error}") from None
    cluster |= {"server": server, "tls-server-name": cluster.get("tls-server-name", host)}
    for part in (cluster, user):
        for key in ("certificate-authority", "client-certificate", "client-key", "tokenFile"):
            if key in part:
                part[key] = str((kubeconfig.parent / part[key]).resolve())
    changed = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "lab", "user": user}],
    }
    return json.dumps(changed), f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _named(entries: Any, name: Any) -> Any:
    return {each["name"]: each for each in entries}[name]


def _forward_api(lab: Lab, server: str) -> None:
    """Make the API server reachable in the lab, which has no way out; a file joins the two."""
    join = lab.directory / "api.sock"
    outside = ["socat", f"UNIX-LISTEN:{join},fork,mode=600", f"TCP:{server},nodelay"]
    lab.start_command(SERVER, "api-outside", outside)
    listen = f"TCP-LISTEN:{API_PORT},bind={lab.address()},fork,reuseaddr,nodelay"
    inside = lab.start(SERVER, "api", ["socat", listen, f"UNIX-CONNECT:{join}"])
    wait_listening(inside, API_PORT, _START_S)


def _start_registry(lab: Lab) -> None:
    """Start the registry, with the image that holds a pod's namespaces in it."""
    storage = lab.data / "registry"
    storage.mkdir(mode=0o700)
    config = {
        "version": "0.1",
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(storage)}},
        "http": {"addr": registry_address(lab), "relativeurls": True},
    }
    file = _write(lab.directory / "registry.yml", json.dumps(config))
    registry = lab.start(SERVER, "registry", ["docker-registry", "serve", str(file)])
    wait_listening(registry, REGISTRY_PORT, _START_S)
    busybox = Path(shutil.which("busybox") or "").read_bytes()
    # Its layer is of no other image, as elsewhere.
    pause = image_builder.layer({"pause/busybox": busybox})
    with closing(registry_connection(lab)) as connection:
        image_builder.push(
            connection, _PAUSE, "1", [pause], ["/pause/busybox", "sleep", "2147483647"]
        )


def registry_connection(lab: Lab) -> HTTPConnection:
    """A connection to the lab's registry, also from outside the lab."""
    connection = HTTPConnection(lab.address(), REGISTRY_PORT)
    address = (lab.address(), REGISTRY_PORT)
    connection.sock = network.connect_in(lab.spec.namespace(SERVER), address)
    return connection


def _route_pods(lab: Lab) -> None:
    for host in lab.spec.hosts:
        for board in lab.spec.boards:
            if host.name != board.name:
                subnet = str(pod_subnet(lab.spec, board.name))
                way = (subnet, "via", lab.address(board.name))
                network.run("ip", "-n", lab.spec.namespace(host.name), "route", "add", *way)


def _write_files(lab: Lab, board: str, root: Path, login: str, config: Mapping[str, Any]) -> None:
    """Write what a board's daemons read; paths in the files are as the daemons see them."""
    own = root / _INSIDE.relative_to("/")
    for folder in (own / "bin", root / "var/lib", root / "var/log", root / "sysctl"):
        folder.mkdir(mode=0o700, parents=True)
    (root / "var/run").symlink_to("/run")
    (root / "var/tmp").mkdir(mode=0o700)
    for name, value in _SYSCTLS.items():
        _write(root / "sysctl" / name, f"{value}\n")
    for name in BINARIES:
        _write(own / "bin" / name, "")
    _write(own / "kubeconfig", login)
    _write(own / "containerd.toml", _containerd_toml(lab))
    _write(
        own / "kubelet.json",
        json.dumps(_kubelet_config(cgroups.name(lab.spec.name, board)) | dict(config)),
    )
    _write(own / "cni/leadline.conflist", json.dumps(_cni(pod_subnet(lab.spec, board))))
    registry = registry_address(lab)
    hosts = f'[host."http://{registry}"]\ncapabilities = ["pull", "resolve"]\n'
    _write(own / "certs.d" / registry / "hosts.toml", hosts)


def _enter_script(root: Path, cgroup: Path, binaries: Mapping[str, Path]) -> str:
    """A script that joins the cgroup, mounts a board's folders and executes its arguments."""
    inside = root / _INSIDE.relative_to("/")
    mounts = {path: inside / "bin" / name for name, path in binaries.items()}
    sysctls = {root / "sysctl" / name: Path("/proc/sys", name) for name in _SYSCTLS}
    mounts |= {value: setting for value, setting in sysctls.items() if setting.exists()}
    # The last one hides where the folders are.
    mounts |= {root / "run": Path("/run"), root / "var": Path("/var")}
    return "\n".join(
        [
            "set -e",
            f"echo 0 >{cgroup}/cgroup.procs",
            *(
                f"mount --rbind {shlex.quote(str(source))} {shlex.quote(str(target))}"
                for source, target in mounts.items()
            ),
            f'PATH={_INSIDE}/bin:$PATH exec "$@"',
        ]
    )


def _containerd_toml(lab: Lab) -> str:
    folders = json.dumps([str(each) for each in _CNI_FOLDERS])
    return f"""\
version = 3
[plugins.'io.containerd.internal.v1.opt']
path = "/var/lib/containerd/opt"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{registry_address(lab)}/{_PAUSE}:1"
[plugins.'io.containerd.cri.v1.images'.registry]
config_path = "{_INSIDE}/certs.d"
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = {folders}
conf_dir = "{_INSIDE}/cni"
"""


def _cni(subnet: ipaddress.IPv4Network) -> dict[str, Any]:
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": str(subnet)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipam": ipam}
    return {"cniVersion": "1.0.0", "name": "leadline", "plugins": [bridge]}


def _kubelet_config(cgroup: str) -> dict[str, Any]:
    """All that differs from kubelet's defaults. It must not judge the machine that it shares."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        # The API server can't reach it, and pods need not.
        "enableServer": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "evictionHard": _NO_EVICTION,
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        "volumePluginDir": "/var/lib/kubelet/volumeplugins",
    }


def _write(file: Path, text: str) -> Path:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.write_text(text, encoding="utf-8")
    return file
