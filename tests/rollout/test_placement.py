"""The controller places pods by the boards' reports, in both ways that docs/k3s.md describes, and
has no other rights in Kubernetes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from tests.kube.objects import pod
from tests.rollout.evidence import Evidence
from tests.rollout.machines import Machine
from tests.rollout.nspawn_testbed import SERVER, NspawnTestbed
from tests.rollout.placing import BOUND_S, place_pod

LOGIN = "--kubeconfig /etc/leadline/kubeconfig"
STARTED = "systemctl show k3s --property ExecMainStartTimestampMonotonic"
FIRST_ROUND_TRIPS_S = 120
# The bandwidth tests of all pairs of boards, which run one at a time.
MEASURED_S = 180
SLOW_MBPS = 8
# The times to live of docs/configuration.md.
TTL_S = {"report": 60, "rtt": 180}


def explain(server: Machine, name: str) -> dict[str, Any]:
    """The output of `leadline explain` for a pod."""
    answer: dict[str, Any] = json.loads(
        server.wait_for(f"leadline explain {name} -o json", BOUND_S).stdout
    )
    return answer


def wait_for_round_trips(server: Machine, boards: set[str]) -> None:
    """Wait until each board has measured the round trip to another one."""
    reads = "import json, sys; print(*(n for each in json.load(sys.stdin)['links']"
    reads += " if each['rtt_ms'] for n in (each['a'], each['b'])))"
    known = f'leadline matrix --rtt -o json | python3 -c "{reads}"'
    all_known = " && ".join(f"echo $known | grep -qw {board}" for board in sorted(boards))
    server.wait_for(f"known=$({known}); {all_known}", FIRST_ROUND_TRIPS_S)


@pytest.fixture(scope="module")
def as_extender(deployed: NspawnTestbed, evidence: Evidence) -> Iterator[NspawnTestbed]:
    """The testbed with Leadline as kube-scheduler's extender; the tests' end restores it."""
    try:
        run = deployed.ansible("site", limit=SERVER, extra={"controller_mode": "extender"})
        evidence.keep("site-extender.txt", run.output)
        yield deployed
    finally:
        deployed.server.run("kubectl delete pod --all --grace-period=0 --force")
        deployed.ansible("upgrade", limit=SERVER)
        deployed.server.run("test ! -e /etc/leadline/kube-scheduler.yaml")


@contextmanager
def slow_link(testbed: NspawnTestbed, board: str) -> Iterator[None]:
    """Throttle the board's link in both directions during a block of code."""
    machine = testbed.boards[board]
    shape = f"root tbf rate {SLOW_MBPS}mbit burst 32kb latency 400ms"
    testbed.namespaces.must("tc", "qdisc", "add", "dev", f"vb-{board}", *shape.split())
    machine.run(f"tc qdisc add dev host0 {shape}")
    try:
        yield
    finally:
        machine.run("tc qdisc del dev host0 root")
        testbed.namespaces.must("tc", "qdisc", "del", "dev", f"vb-{board}", "root")


def as_good_ms(wait_ms: float) -> float:
    """The longest wait that is as good, on boards with the same preferences: 1 % and 0.1 ms are
    equal, and within 1 ms preferences decide."""
    return wait_ms + max(0.01 * wait_ms + 0.1, 1.0)


def test_a_pod_goes_where_the_boards_reports_say(
    deployed: NspawnTestbed, evidence: Evidence
) -> None:
    server = deployed.server
    wait_for_round_trips(server, set(deployed.boards))
    manifest = pod("near-pi-1", "100m", annotations={"leadline.dev/user-node": "pi-1"})
    node = place_pod(server, manifest)
    explanation = explain(server, "near-pi-1")
    evidence.keep("explain.txt", server.run("leadline explain near-pi-1").stdout)
    assert (explanation["node"], explanation["outcome"]) == (node, "bound")
    totals = {name: score["total"] for name, score in explanation["scores"].items()}
    assert set(totals) == set(deployed.machines)
    assert totals[node] <= as_good_ms(min(totals.values()))
    for board in deployed.boards.keys() - {"pi-1"}:
        age_s = explanation["scores"][board]["ages_s"]["rtt"]
        assert 0 <= age_s < TTL_S["rtt"]
    server.run("kubectl delete pod near-pi-1 --grace-period=0 --force")


def test_a_link_that_became_slow_is_measured_and_counts(
    deployed: NspawnTestbed, evidence: Evidence
) -> None:
    server = deployed.server
    read = "import json, sys; mbps = json.load(sys.stdin)['metrics']['bandwidth_mbps']['value']"
    is_slow = f'leadline node pi-2 -o json | python3 -c "{read}; sys.exit(mbps > {2 * SLOW_MBPS})"'
    # What is printed shows why, if it is not found.
    state = "leadline node pi-2; leadline budget; journalctl --unit leadline-controller --lines 30"
    with slow_link(deployed, "pi-2"):
        server.wait_for(f"{is_slow} || {{ {state}; false; }}", MEASURED_S)
        near_pi_1 = {"leadline.dev/user-node": "pi-1", "leadline.dev/data-mb": "100"}
        node = place_pod(server, pod("much-data", "100m", annotations=near_pi_1))
    explanation = explain(server, "much-data")
    evidence.keep("explain-slow-link.txt", server.run("leadline explain much-data").stdout)
    users_ms = {name: score["parts"]["users_ms"] for name, score in explanation["scores"].items()}
    assert users_ms["pi-2"] > 1000 * 100 * 8 / (2 * SLOW_MBPS)
    totals = {name: score["total"] for name, score in explanation["scores"].items()}
    assert totals[node] <= as_good_ms(totals["pi-2"])
    server.run("kubectl delete pod much-data --grace-period=0 --force")


def test_an_emulated_board_serves_bandwidth_tests(deployed: NspawnTestbed) -> None:
    # Its emulator has fewer socket options than a kernel, which would fail each test with it.
    said = deployed.server.run(
        "journalctl --unit leadline-controller --grep 'bandwidth test' || true"
    )
    assert "Protocol not available" not in said.stdout


@pytest.mark.parametrize(
    ("allowed", "what"),
    [
        ("yes", "create pods --subresource=binding"),
        ("yes", "watch nodes"),
        ("yes", "patch leases.coordination.k8s.io/leadline-controller -n kube-system"),
        ("no", "patch leases.coordination.k8s.io/kube-scheduler -n kube-system"),
        ("yes", "delete pods"),  # to preempt them, which is on by default
        ("no", "create pods"),
        ("no", "delete nodes"),
        ("no", "patch nodes"),
        ("no", "get secrets -n kube-system"),
        ("no", "list secrets -A"),
        ("no", "escalate clusterroles"),
        ("no", "impersonate users"),
        ("no", "'*' '*'"),
    ],
)
def test_the_account_has_the_least_rights(deployed: NspawnTestbed, allowed: str, what: str) -> None:
    answer = deployed.server.run(f"kubectl {LOGIN} auth can-i {what}", check=False)
    assert answer.stdout.strip() == allowed, answer.stderr


def test_kube_scheduler_is_advised(as_extender: NspawnTestbed) -> None:
    server = as_extender.server
    node = place_pod(server, pod("advised", "100m", scheduler="default-scheduler"))
    events = server.wait_for("kubectl get events | grep Advised | grep pod/advised", BOUND_S)
    assert node in events.stdout
    explanation = explain(server, "advised")
    assert explanation["node"] == node
    assert set(explanation["scores"]) == set(as_extender.machines)


def test_k3s_is_not_restarted_for_nothing(as_extender: NspawnTestbed) -> None:
    before = as_extender.server.run(STARTED).stdout
    again = as_extender.ansible("upgrade", limit=SERVER, extra={"controller_mode": "extender"})
    assert again.recap[SERVER].changed == 0
    assert as_extender.server.run(STARTED).stdout == before


def test_k3s_is_put_back_when_its_scheduler_refuses(
    as_extender: NspawnTestbed, evidence: Evidence
) -> None:
    server = as_extender.server
    extra = {
        "controller_mode": "extender",
        # The file exists, but it is no kubeconfig.
        "controller_scheduler_kubeconfig": "/etc/hostname",
        "controller_k3s_patience_s": 20,
    }
    run = as_extender.ansible("upgrade", limit=SERVER, extra=extra, check=False)
    evidence.keep("upgrade-refused-by-kube-scheduler.txt", run.output)
    assert run.code != 0
    output = re.sub(r"\s+", " ", run.output)
    assert "scheduler exited" in output
    assert "They were taken back, and k3s runs as before" in output
    server.run("systemctl is-active k3s leadline-controller")
    assert place_pod(server, pod("as-before", "100m", scheduler="default-scheduler"))


def test_a_kube_scheduler_with_settings_of_its_own_is_left_alone(deployed: NspawnTestbed) -> None:
    server, own = deployed.server, "/etc/rancher/k3s/config.yaml.d/own.yaml"
    server.run(f"mkdir -p $(dirname {own})")
    server.run(f"printf 'kube-scheduler-arg:\n- config=/etc/own.yaml\n' > {own}")
    extra = {"controller_mode": "extender"}
    try:
        run = deployed.ansible("preflight", limit=SERVER, extra=extra, check=False)
    finally:
        server.run(f"rm {own}; rmdir --ignore-fail-on-non-empty $(dirname {own})")
    assert run.code != 0
    assert f"{own} gives kube-scheduler a file of its own already" in " ".join(run.output.split())


def test_the_unit_gets_the_login_and_nobody_else_can_read_it(deployed: NspawnTestbed) -> None:
    server = deployed.server
    mode = server.run("stat -c '%a %U:%G' /etc/leadline/kubeconfig").stdout.split()
    assert mode == ["600", "root:root"]
    kubeconfig = yaml.safe_load(server.run("cat /etc/leadline/kubeconfig").stdout)
    assert kubeconfig["users"][0]["user"]["token"].count(".") == 2
    denied = server.run("runuser -u pi -- cat /etc/leadline/kubeconfig", check=False)
    assert "Permission denied" in denied.stderr
