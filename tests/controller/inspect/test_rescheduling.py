"""Plans and moves over gRPC, as the command line asks for them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner, Result
from leadline_controller.cli.__main__ import leadline
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.model import CPU, PODS, Node, Owner, Pod
from leadline_controller.framework.ports import ClusterChange, Relisted
from leadline_controller.history.times import Moment
from leadline_controller.rescheduling.journal import HourlyBudgets
from leadline_controller.rescheduling.rescheduler import ReschedulingSettings
from leadline_controller.serve.settings import GrpcSettings, TlsFiles
from leadline_controller.settings import Settings
from leadline_controller.wiring import Controller, Servers, running

from tests.kube.moving import Liking
from tests.support.certificates import Authority
from tests.support.grpc_tls import tls_files
from tests.support.memory_cluster import MemoryCluster


class Asked:
    """A controller with its API, and the command line that asks it."""

    def __init__(self, controller: Controller, cluster: MemoryCluster, address: str) -> None:
        self.controller = controller
        self.cluster = cluster
        self._address = address

    async def ask(self, *arguments: str) -> Result:
        command = [*arguments, "--address", self._address]
        return await asyncio.to_thread(CliRunner().invoke, leadline, command)

    async def json(self, *arguments: str) -> Any:
        answer = await self.ask(*arguments, "-o", "json")
        assert answer.exit_code == 0, answer.output
        return json.loads(answer.stdout)


@asynccontextmanager
async def asked(
    address: str = "", tls: TlsFiles | None = None, **settings: Any
) -> AsyncIterator[Asked]:
    """A controller at this address; without one at a socket, whose users may change the cluster."""
    cluster = MemoryCluster([Node(name, {CPU: 4000, PODS: 9}) for name in ("n1", "n2")])
    owner = Owner("ReplicaSet", "web", "uid-web")
    for name, owned in (("web", owner), ("alone", None)):
        cluster.put_pod(
            Pod(
                *("default", name, f"uid-{name}"),
                requests={CPU: 100, PODS: 1},
                node_name="n1",
                owner=owned,
                ready=True,
                created_s=1.0,
            )
        )
    given = {"cooldown_s": 0.0, "timeout_s": 0.2, "budgets": HourlyBudgets(9, 9, 9), **settings}
    folder = TemporaryDirectory()
    serve = GrpcSettings(address or f"unix:{folder.name}/api", tls)
    whole = Settings(warm_up_s=0.0, rescheduling=ReschedulingSettings(**given), serve=serve)
    controller = Controller(whole, cluster, Rule(Liking({"n2": 4.0}), FILTERS, Random(1)))
    with folder:
        async with (
            running(*controller.placing()),
            Servers(controller).serving() as at,
        ):
            yield Asked(controller, cluster, at["grpc"])


async def test_a_dry_run_shows_moves_and_why_others_stay() -> None:
    async with asked() as here:
        plan = await here.json("reschedule", "--dry-run")
        (move,) = plan["moves"]
        assert (move["pod"], move["source"], move["target"]) == ("default/web", "n1", "n2")
        assert (move["score"], move["better_score"], move["gain"]) == (1.0, 4.0, 0.75)
        assert "only ready pod" in move["disruption"]
        (stay,) = plan["stays"]
        assert (stay["pod"], "no owner" in stay["why"]) == ("default/alone", True)
        assert plan["state"]["mode"] == "off"

        shown = (await here.ask("reschedule")).output
        assert f"plan {plan['id']}" in shown
        assert "75 %" in shown
        assert "rescheduling is off" in shown


async def test_when_it_is_off_nothing_is_moved() -> None:
    async with asked() as here:
        answer = await here.ask("reschedule", "--apply")
        assert answer.exit_code == 1
        assert 'set mode = "manual"' in answer.output
        assert here.cluster.pod("default/web").node_name == "n1"


async def test_just_this_plan_or_what_has_changed() -> None:
    async with asked(mode="manual") as here:
        plan = await here.json("reschedule")
        other = await here.ask("reschedule", "--apply", "0123456789ab")
        assert "the cluster has changed" in other.output
        assert plan["id"] in other.output

        ended = await here.ask("reschedule", "--apply", plan["id"], "-o", "json")

        # Nobody makes a replacement here.
        assert ended.exit_code == 1
        (outcome,) = json.loads(ended.stdout)["outcomes"]
        assert (outcome["pod"], outcome["ending"]) == ("default/web", "failed")
        assert here.cluster.pod("default/web").terminating
        again = await here.json("reschedule", "--apply")
        assert again["moves"] == []


async def test_a_pause_is_shown_and_kept_and_ends() -> None:
    async with asked(mode="manual") as here:
        paused = await here.json("pause", "--for", "2h", "--reason", "new  switch")
        assert paused["paused"]
        assert paused["pause"]["reason"] == "new switch"
        assert 7100 < paused["pause"]["left_s"] <= 7200
        assert "paused" in await here.cluster.read_notes()

        ended = await here.ask("reschedule", "--apply", "-o", "json")
        (outcome,) = json.loads(ended.stdout)["outcomes"]
        assert (outcome["ending"], outcome["ending_why"]) == ("refused", "rescheduling is paused")

        assert not (await here.json("resume"))["paused"]
        assert "paused" not in await here.cluster.read_notes()


async def test_a_pause_for_some_time_needs_a_clock() -> None:
    async with asked(mode="manual") as here:
        here.controller.decisions.now = lambda: Moment("boot", 1.0, None)
        refused = await here.ask("pause", "--for", "2h")
        assert refused.exit_code == 1
        assert "clock is not set: pause without --for" in refused.output
        assert "paused" not in await here.cluster.read_notes()
        assert (await here.ask("pause")).exit_code == 0
        assert "paused" in await here.cluster.read_notes()


@pytest.mark.parametrize("command", [["reschedule", "--apply"], ["pause"], ["resume"]])
async def test_a_port_without_certificates_is_only_to_look(command: list[str]) -> None:
    async with asked("127.0.0.1:0", mode="manual") as here:
        answer = await here.ask(*command)
        assert answer.exit_code == 1
        assert "you may not change the cluster: a port without certificates" in answer.output
        assert "call it with sudo at unix:/run/leadline/controller.sock" in answer.output
        assert len((await here.json("reschedule"))["moves"]) == 1
        assert dict(await here.cluster.read_notes()) == {}


async def test_a_certificate_changes_the_cluster_whose_name_is_configured(
    authority: Authority,
) -> None:
    own = authority.client("alice")
    shown = ["--ca", own.ca_file, "--cert", own.cert_file, "--key", own.key_file]
    tls = tls_files(authority.server("127.0.0.1"))
    for admins, told in (((), "(alice) is not in admins"), (("alic",), "(alice) is not in")):
        async with asked("127.0.0.1:0", tls, mode="manual", admins=admins) as here:
            answer = await here.ask("pause", *map(str, shown))
            assert (answer.exit_code, told in answer.output) == (1, True)
    async with asked("127.0.0.1:0", tls, mode="manual", admins=("bob", "alice")) as here:
        answer = await here.ask("pause", *map(str, shown))
        assert answer.exit_code == 0, answer.output


async def test_dry_run_and_apply_exclude_each_other() -> None:
    async with asked() as here:
        answer = await here.ask("reschedule", "--dry-run", "--apply", "x")
        assert answer.exit_code == 2


async def test_without_nodes_and_pods_it_is_said_what_is_missing() -> None:
    class Unread(MemoryCluster):
        async def watch(self) -> AsyncGenerator[ClusterChange, None]:
            await asyncio.Event().wait()
            yield Relisted((), ())

    cluster, settings = Unread([]), Settings(serve=GrpcSettings("127.0.0.1:0"))
    controller = Controller(settings, cluster, Rule(Liking({}), FILTERS, Random(1)))
    async with Servers(controller).serving() as at, running(*controller.placing()):
        here = Asked(controller, cluster, at["grpc"])
        for words in (("reschedule", "--dry-run"), ("pause",)):
            answer = await here.ask(*words)
            assert answer.exit_code == 1
            assert "nodes and pods are not read from the API server yet" in answer.output
