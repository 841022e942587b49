"""Which strategy an installation runs that names none."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from leadline_controller.framework.ports import ClusterError, LeaseRecord, UnavailableError
from leadline_controller.history.store import HistorySettings
from leadline_controller.kube.lease import KubeLease
from leadline_controller.leaderelection.elector import LeaderElector
from leadline_controller.scheduling.shadow import ShadowSettings
from leadline_controller.serve.settings import GrpcSettings
from leadline_controller.settings import ConfigError, Settings, load
from leadline_controller.wiring import daemon
from leadline_controller.wiring.controller import Controller
from leadline_controller.wiring.rules import in_force

from tests.contracts.harnesses import PATIENCE_S
from tests.support.kubeconfig import KUBECONFIG
from tests.support.memory_lease import MemoryLease

OF_AN_OLDER_RELEASE = LeaseRecord("", 1, "then", "then", 3, "41")
NOTED = replace(OF_AN_OLDER_RELEASE, strategy="netsched")


async def strategy_of(settings: Settings, record: LeaseRecord | None) -> str:
    lease = MemoryLease()
    lease.record = record
    return (await in_force(settings, lease)).strategy


@pytest.mark.parametrize(
    ("record", "unnamed"), [(None, "leadline"), (OF_AN_OLDER_RELEASE, "dacs"), (NOTED, "netsched")]
)
async def test_a_new_installation_takes_the_default_and_one_that_is_there_keeps_its_own(
    record: LeaseRecord | None, unnamed: str
) -> None:
    assert await strategy_of(Settings(), record) == unnamed
    assert await strategy_of(Settings(strategy="nas"), record) == "nas"


async def test_without_an_answer_nothing_is_taken_for_granted() -> None:
    lease = MemoryLease()
    lease.fail_next(UnavailableError("away"))
    with pytest.raises(ClusterError):
        await in_force(Settings(), lease)
    assert (await in_force(Settings(strategy="nas"), lease)).strategy == "nas", "it need not ask"


@pytest.mark.parametrize("text", ["", 'strategy.name = ""', "strategy.options = {alpha = 0.25}"])
def test_a_file_without_a_name_leaves_it_open(tmp_path: Path, text: str) -> None:
    file = tmp_path / "controller.toml"
    file.write_text(text)
    assert load(file, {}).strategy == ""


@pytest.mark.parametrize(
    ("settings", "noted", "told"),
    [
        (
            Settings(),
            "own\nrule",
            r"strategy\.name: .* ran 'own\\nrule', which is not installed: install its package, or "
            "name one of leadline, netsched",
        ),
        (
            Settings(options={"alpha": 3}),
            "",
            "strategy.options: .*from 0 to 1, got 3; strategy.name is not set, so the strategy is "
            "dacs, the one of this installation",
        ),
        (
            Settings(options={"alpha": 0.5}),
            "leadline",
            "strategy.options: .*alpha.*so the strategy is leadline",
        ),
        (
            Settings(shadow=ShadowSettings(("dacs",))),
            "",
            r"shadow\.strategies\[0\]: expected another strategy than the one in force",
        ),
    ],
)
async def test_what_does_not_go_with_the_kept_strategy_is_told_in_one_line(
    settings: Settings, noted: str, told: str
) -> None:
    with pytest.raises(ConfigError, match=told) as error:
        await strategy_of(settings, replace(OF_AN_OLDER_RELEASE, strategy=noted))
    assert "\n" not in str(error.value)


class Daemon:
    """The daemon with what its reads of the Lease answer, the last one for ever. Records each
    controller's strategy, whether it is shown as kept, and what each election would note."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[str, bool]] = []
        self.notes: list[str] = []
        self.answers: list[ClusterError | LeaseRecord | None] = []
        self.elected = asyncio.Event()
        self.stop = asyncio.Event()
        file = tmp_path / "kubeconfig"
        file.write_text(KUBECONFIG)
        decisions = HistorySettings(tmp_path / "d.db")
        self.settings = Settings(
            kubeconfig=file, decisions=decisions, serve=GrpcSettings("127.0.0.1:0")
        )
        made, there = self.made, self

        class Noted(Controller):
            def __init__(self, *args: Any, **options: Any) -> None:
                super().__init__(*args, **options)
                made.append((self.rule.strategy.name, self.keeps_strategy))

        async def read(_: KubeLease) -> LeaseRecord | None:
            answer = there.answers.pop(0) if len(there.answers) > 1 else there.answers[0]
            if isinstance(answer, ClusterError):
                raise answer
            return answer

        async def elect(elector: LeaderElector) -> None:
            assert isinstance(elector._store, KubeLease)
            there.notes.append(elector._store.strategy)
            there.elected.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(daemon, "Controller", Noted)
        monkeypatch.setattr(daemon, "_ASK_AGAIN_S", 0.01)
        monkeypatch.setattr(KubeLease, "read", read)
        monkeypatch.setattr(LeaderElector, "run", elect)

    async def run(self, settings: Settings | None = None) -> None:
        """Until it takes part in the election, then stop it."""
        running = asyncio.create_task(daemon.run(settings or self.settings, self.stop))
        electing = asyncio.create_task(self.elected.wait())
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait((running, electing), return_when=asyncio.FIRST_COMPLETED)
            electing.cancel()
            self.stop.set()
            await running


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    return Daemon(tmp_path, monkeypatch)


async def test_the_daemon_notes_what_it_runs(started: Daemon) -> None:
    started.answers = [None]
    await started.run()
    assert (started.made, started.notes) == ([("leadline", True)], ["leadline"])


async def test_a_named_strategy_is_noted_too(started: Daemon) -> None:
    started.answers = [NOTED]
    await started.run(replace(started.settings, strategy="nas"))
    assert (started.made, started.notes) == ([("nas", False)], ["nas"])


async def test_before_the_api_server_answers_it_does_not_take_part_in_the_election(
    started: Daemon,
) -> None:
    """Else it might lead by a strategy that is not the installation's."""
    away = UnavailableError("away")
    started.answers = [away, away, OF_AN_OLDER_RELEASE]
    await started.run(replace(started.settings, options={"alpha": 0.25}))
    assert started.made == [("leadline", True), ("dacs", True)]
    assert started.notes == ["dacs"]


async def test_it_goes_on_where_the_answer_is_what_it_began_with(started: Daemon) -> None:
    started.answers = [UnavailableError("away"), None]
    await started.run()
    assert (started.made, started.notes) == ([("leadline", True)], ["leadline"])


async def test_it_ends_with_the_error_where_the_late_answer_does_not_fit(started: Daemon) -> None:
    gone = replace(OF_AN_OLDER_RELEASE, strategy="gone")
    started.answers = [UnavailableError("away"), gone]
    with pytest.raises(ConfigError, match="'gone', which is not installed"):
        await started.run()
    assert started.notes == []
