"""One yard for all the chapters of the rollout, which are told in order: each finds the yard as
the one before it left it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rollout import bundles
from tests.rollout.evidence import Evidence
from tests.rollout.k3s import k3s_server
from tests.rollout.machines import Extras
from tests.rollout.nspawn_testbed import ADDRESSES, KINDS, SERVER, Yard
from tests.rollout.nspawn_testbed import yard as booted
from tests.rollout.outage import Outage

HERE = Path(__file__).parent
# qemu translates programs while they run, so it has to write what is then executed, and takes three
# times the memory; on a board of its own architecture the unit forbids both.
QEMU = Extras(
    files={
        "/etc/systemd/system/leadline-agent.service.d/qemu.conf": (
            "[Service]\nMemoryDenyWriteExecute=no\nMemoryHigh=512M\nMemoryMax=512M\n",
            0o644,
        )
    }
)
# The first boot of a new checkout waits for its images; a play on four machines takes minutes.
CHAPTER_S = 1800
CHAPTERS = (
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
    "test_remove",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tell the chapters in order, and give them time."""
    ours = [item for item in items if item.path.parent == HERE]
    for item in ours:
        item.add_marker(pytest.mark.rollout)
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(CHAPTER_S))
    ours.sort(key=lambda item: CHAPTERS.index(item.path.stem))
    items[:] = [item for item in items if item.path.parent != HERE] + ours


@pytest.fixture(scope="session")
def evidence() -> Evidence:
    return Evidence()


@pytest.fixture(scope="session")
def yard(tmp_path_factory: pytest.TempPathFactory, evidence: Evidence) -> Iterator[Yard]:
    nodes = {name: (ADDRESSES[name], kind.architecture) for name, kind in KINDS.items()}
    folder = tmp_path_factory.mktemp("yard")
    bundles.build(folder / "bundle")
    with booted(folder, {SERVER: k3s_server(nodes), "pi-3": QEMU}) as running:
        yield running
        for machine in running.machines.values():
            evidence.keep(f"journal-{machine.name}.txt", machine.journal())


@pytest.fixture(scope="session")
def deployed(yard: Yard, evidence: Evidence) -> Yard:
    """The yard after `site`, which runs now unless a chapter before has run it."""
    yard.deploy(evidence)
    return yard


@pytest.fixture(scope="session")
def outage(deployed: Yard) -> Iterator[Outage]:
    """Ten minutes without a broker, from the first test that asks for it on; the last one that
    does waits for their end."""
    began = Outage(deployed)
    try:
        yield began
    finally:
        if not began.is_over:
            began.bring_back()
