"""The kinds of problem that a controller can have: how bad each is and what to do.

docs/troubleshooting.md has an entry for each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]


SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem: how bad it is, what to do, and the commands that help."""

    severity: Severity
    remedy: str
    commands: tuple[str, ...] = ()


_UNIT = ("systemctl status leadline-controller", "journalctl -u leadline-controller -n 50")


_MOSQUITTO = ("systemctl status mosquitto", "journalctl -u mosquitto -n 50")


_AGENT = ("systemctl status leadline-agent", "journalctl -u leadline-agent -n 50")


_K3S = ("systemctl status k3s", "journalctl -u k3s -n 50", "kubectl get --raw /readyz")


_DISK = ("df -h /var/lib/leadline-controller", "journalctl -u leadline-controller -n 50")


KINDS: Mapping[str, Kind] = {
    "broker-away": Kind(
        "error",
        "see on the broker's machine whether it runs or hangs, and restart it if so",
        (*_MOSQUITTO, "systemctl restart mosquitto"),
    ),
    "broker-silent": Kind(
        "error",
        "see on the broker's machine whether it hangs, and restart it if it does",
        (*_MOSQUITTO, "systemctl restart mosquitto"),
    ),
    "broker-refuses": Kind(
        "error",
        "let the controller read these topics, with wildcards, in the broker's ACL and settings",
        _MOSQUITTO,
    ),
    "api-server-away": Kind("error", "see on the server whether Kubernetes runs", _K3S),
    "api-server-refuses": Kind(
        "error",
        "give the controller's account its rights again",
        ("leadline kube manifests | kubectl apply -f -", *_UNIT),
    ),
    "cluster-unread": Kind(
        "error", "wait until the controller has read nodes and pods, and see its log", _UNIT
    ),
    "no-leader": Kind(
        "error",
        "see why nobody holds the Lease; until then no pod is placed",
        ("kubectl -n kube-system get lease leadline-controller -o yaml", *_UNIT),
    ),
    "loop-stuck": Kind(
        "error",
        "restart the controller, and please report it",
        ("systemctl restart leadline-controller", *_UNIT),
    ),
    "few-boards-report": Kind(
        "error",
        "see on a board whether its agent runs and reaches the broker; pods are placed without "
        "measured values until then",
        ("leadline nodes --problems", *_AGENT),
    ),
    "address-taken": Kind(
        "warning",
        "see which program has the port, or set another address; it is tried again by itself",
        ("ss -tlnp", *_UNIT),
    ),
    "board-offline": Kind(
        "warning",
        "see on the board whether it is on and its agent runs",
        ("leadline nodes --problems", "ping BOARD", *_AGENT),
    ),
    "board-silent": Kind(
        "warning",
        "see on the board whether its agent runs or the board hangs",
        ("leadline nodes --problems", "ping BOARD", *_AGENT),
    ),
    "board-without-agent": Kind("note", "install the agent, or leave it without", _AGENT),
    "board-under-voltage": Kind(
        "warning",
        "give the board a better supply or cable; it is slower until then",
        ("vcgencmd get_throttled", "leadline node BOARD"),
    ),
    "board-throttled": Kind(
        "warning",
        "cool the board or check its supply; it is slower until then",
        ("vcgencmd measure_temp", "vcgencmd get_throttled", "leadline node BOARD"),
    ),
    "board-clock-skewed": Kind(
        "warning",
        "let the board's clock be set; certificates and tokens fail with a wrong one",
        ("timedatectl", "systemctl status systemd-timesyncd"),
    ),
    "board-contradicting": Kind(
        "warning",
        "check the load of the board and its agent; what it measures does not count",
        ("leadline node BOARD", *_AGENT),
    ),
    "board-collector-failed": Kind(
        "warning",
        "see why at the board's notes, and mend what the agent cannot read",
        ("leadline node BOARD", *_AGENT),
    ),
    "board-host-limited": Kind(
        "note",
        "nothing: a busy board held the last bandwidth test back, so its link may do more",
        ("leadline node BOARD",),
    ),
    "reports-late": Kind(
        "warning",
        "see whether the network or the broker is overloaded",
        ("leadline nodes", *_MOSQUITTO),
    ),
    "probing-budget-spent": Kind(
        "note",
        "nothing, or raise bytes_per_day of [probe] or of the uplink",
        ("leadline budget",),
    ),
    "pods-unschedulable": Kind(
        "warning",
        "see why they fit nowhere",
        ("leadline explain POD", "kubectl -n NAMESPACE describe pod NAME"),
    ),
    "binding-failed": Kind(
        "warning", "see what the API server said", ("leadline explain POD", *_UNIT)
    ),
    "database-unwritable": Kind(
        "warning",
        "make room on the disk or mend it; decisions are kept in memory until then",
        _DISK,
    ),
    "database-hangs": Kind("warning", "see whether the disk is broken", ("dmesg | tail", *_DISK)),
    "decisions-lost": Kind("note", "see whether the disk is slow; pods are placed as ever", _DISK),
    "disk-nearly-full": Kind("warning", "make room on the disk", _DISK),
    "rescheduling-paused": Kind("note", "resume it when pods may be moved", ("leadline resume",)),
    "notification-lost": Kind(
        "warning",
        "see whether the receiver runs and takes the token; it is tried again by itself",
        ("journalctl -u leadline-controller -n 50",),
    ),
    "recording-off": Kind(
        "warning",
        "make room on the disk, or let the controller write there; it is tried again by itself",
        _DISK,
    ),
    "recording-gaps": Kind(
        "note", "see whether the disk is slow; a replay is less exact there", _DISK
    ),
    "certificate-expired": Kind(
        "error",
        "renew it; connections that use it fail",
        ("ansible-playbook leadline.edge.site", "systemctl restart leadline-controller"),
    ),
    "certificate-ending": Kind(
        "warning",
        "renew it before it ends",
        ("ansible-playbook leadline.edge.site", "systemctl restart leadline-controller"),
    ),
    "certificate-unreadable": Kind("warning", "see whether the file is there and whole", _UNIT),
}
