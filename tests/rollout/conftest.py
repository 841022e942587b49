"""One testbed for all modules of the rollout. They run in order, and each continues with the state
that the one before it left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rollout import board_images, bundles
from tests.rollout.broker_outage import BUFFER_BYTES, BrokerOutage
from tests.rollout.evidence import Evidence
from tests.rollout.k3s import k3s_server
from tests.rollout.machines import MachineExtras
from tests.rollout.nspawn_testbed import ADDRESSES, KINDS, SERVER, NspawnTestbed, booted

HERE = Path(__file__).parent
# qemu translates programs at run time: it executes memory that it has written, and needs three
# times as much. On a board of its own architecture the unit forbids both.
QEMU = MachineExtras(
    files={
        "/etc/systemd/system/leadline-agent.service.d/qemu.conf": (
            "[Service]\nMemoryDenyWriteExecute=no\nMemoryHigh=512M\nMemoryMax=512M\n",
            0o644,
        )
    }
)
# The first run builds the images, and a play on four machines takes minutes.
MODULE_TIMEOUT_S = 1800
MODULES = (
    "test_nspawn_testbed",
    "test_fresh",
    "test_site",
    "test_placement",
    "test_metrics",
    "test_refusals",
    "test_secrets",
    "test_hostile",
    "test_watchdog",
    "test_reboot",
    "test_broker_away",
    "test_renewal",
    "test_power_cut",
    "test_upgrade",
    "test_rollback",
    "test_flows",
    "test_remove",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the modules in order, with enough time."""
    items_here = [item for item in items if item.path.parent == HERE]
    for item in items_here:
        item.add_marker(pytest.mark.rollout)
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(MODULE_TIMEOUT_S))
    items_here.sort(key=lambda item: MODULES.index(item.path.stem))
    items[:] = [item for item in items if item.path.parent != HERE] + items_here


@pytest.fixture(scope="session")
def evidence() -> Evidence:
    return Evidence()


@pytest.fixture(scope="session")
def testbed(
    tmp_path_factory: pytest.TempPathFactory, evidence: Evidence
) -> Iterator[NspawnTestbed]:
    nodes = {name: (ADDRESSES[name], kind.architecture) for name, kind in KINDS.items()}
    folder = tmp_path_factory.mktemp("testbed")
    with board_images.built_meanwhile(KINDS.values()):
        bundles.build(folder / "bundle")
    with booted(folder, {SERVER: k3s_server(nodes), "pi-3": QEMU}) as running:
        for board in running.boards:
            running.vary(board, agent_settings={"buffer": {"max_bytes": BUFFER_BYTES}})
        yield running
        for machine in running.machines.values():
            evidence.keep(f"journal-{machine.name}.txt", machine.journal())


@pytest.fixture(scope="session")
def deployed(testbed: NspawnTestbed, evidence: Evidence) -> NspawnTestbed:
    """The testbed after `site`, which runs now unless it has run already."""
    testbed.deploy(evidence)
    return testbed


@pytest.fixture(scope="session")
def outage(deployed: NspawnTestbed) -> Iterator[BrokerOutage]:
    """Minutes without a broker, from the first test that requests it; the last one waits for the
    end."""
    outage = BrokerOutage(deployed)
    try:
        yield outage
    finally:
        if not outage.is_over:
            outage.bring_back()
