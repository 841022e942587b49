import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest
import yaml
from leadline_controller import __version__
from leadline_controller.cli.__main__ import run
from leadline_controller.framework.model import Layer, Pod
from leadline_controller.framework.ports import ImagePull, NodeDeleted, PodChanged, PodDeleted
from leadline_controller.history.log import BOUND, PENDING
from leadline_controller.probing.scheduler import ProbingStatus
from leadline_controller.registry.lookup import RegistryStatus
from leadline_controller.serve.settings import ServeSettings, TlsFiles
from leadline_controller.telemetry.paths import PingRound

from tests.controller.cli.calling import Leadline, calling
from tests.controller.inspect.harness import ControllerHarness, answering, pod
from tests.support.certificates import Authority
from tests.support.ports import free_port

LISTINGS = (
    *(["nodes"], ["node", "n1"], ["matrix"], ["budget"], ["placements"], ["images"]),
    ["explain", "web-1"],
)


@pytest.mark.parametrize("listing", LISTINGS)
async def test_every_list_is_printed_in_every_format(
    leadline: Leadline, listing: list[str]
) -> None:
    as_json = await leadline(*listing, "-o", "json")
    as_yaml = await leadline(*listing, "-o", "yaml")
    assert json.loads(as_json.out) == yaml.safe_load(as_yaml.out)
    for form in ("table", "wide"):
        shown = await leadline(*listing, "-o", form)
        assert (shown.code, shown.err) == (0, "")
        assert "n1" in shown.out
        assert "\x1b" not in shown.out


async def test_no_proxy_of_the_environment_sees_the_names_of_nodes(
    leadline: Leadline, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    shown = await leadline("nodes")
    assert (shown.code, shown.err) == (0, "")


async def test_version_shows_the_controller_that_answers(
    harness: ControllerHarness, leadline: Leadline
) -> None:
    assert f"{__version__}, leads" in (await leadline("version")).out
    harness.turn.leading, harness.turn.named = False, "another"
    shown = await leadline("version")
    assert (shown.code, shown.err) == (0, "")
    assert f"{__version__}, stands by; another leads" in shown.out
    told = json.loads((await leadline("version", "-o", "json")).out)["controller"]
    assert (told["leader"], told["lease_holder"], told["cluster"]) == (False, "another", "lab")


async def test_version_needs_no_controller(capsys: pytest.CaptureFixture[str]) -> None:
    unresolvable = f"127.0.0.1:{free_port()}"
    assert await asyncio.to_thread(run, ["version", "--address", unresolvable]) == 0
    assert f"none answers at {unresolvable}" in capsys.readouterr().out
    assert await asyncio.to_thread(run, ["version", "-o", "json", "--address", unresolvable]) == 0
    assert json.loads(capsys.readouterr().out)["controller"] is None


async def test_nodes_as_json_keep_unknown_apart_from_zero(leadline: Leadline) -> None:
    nodes = json.loads((await leadline("nodes", "-o", "json")).out)["nodes"]
    by_name = {node["name"]: node for node in nodes}
    cpu = {"value": 12.5, "age_s": 13.0, "confidence": round(1 - 13 / 60, 3)}
    assert by_name["n1"]["metrics"]["cpu_percent"] == cpu
    assert by_name["n1"]["metrics"]["bandwidth_mbps"]["lower_bound"] is True
    assert by_name["n3"]["metrics"] == {}
    assert by_name["n3"]["report_age_s"] is None
    assert by_name["guest"]["allocatable"] is None
    assert by_name["n1"]["allocatable"]["cpu_milli"] == 4000


async def test_one_node_as_json_has_its_links_and_pods(leadline: Leadline) -> None:
    node = json.loads((await leadline("node", "n1", "-o", "json")).out)
    assert node["links"][0]["rtt_method"] == "icmp"
    assert "default/web-1" in node["placed_pods"]


async def test_the_history_of_a_node_is_drawn_and_in_json_has_its_points(
    harness: ControllerHarness, leadline: Leadline
) -> None:
    for minute in range(30):
        harness.hear("n1", cpu_percent=float(minute % 8), memory_percent=40.0)
        harness.telemetry.rtts("n1", harness.stamp("n1"), {"n2": PingRound(0.42)})
        harness.sample()
        harness.now_s += 60
    harness.sample()
    shown = (await leadline("node", "n1", "--since", "30m")).out
    (cpu,) = [
        line for line in shown.splitlines() if line.startswith("cpu_percent  ") and "#" in line
    ]
    assert "_.-=+*%#_.-=+*%#_.-=+*%#_.-=+*" in cpu
    assert cpu.split()[-3::2] == ["0", "7"]
    (memory,) = [
        line for line in shown.splitlines() if line.startswith("memory_percent") and "__" in line
    ]
    assert memory.split()[1] == "_" * 30
    assert "rtt_ms n2" in shown
    history = json.loads((await leadline("node", "n1", "--since", "30m", "-o", "json")).out)[
        "history"
    ]
    by_key = {(each["name"], each["peer"]): each for each in history["series"]}
    assert history["step_s"] == 60
    known = [value for value in by_key["cpu_percent", None]["mean"] if value is not None]
    assert known == pytest.approx([minute % 8 for minute in range(30)], abs=0.01)
    assert None in by_key["cpu_percent", None]["mean"]
    assert by_key["rtt_ms", "n2"]["max"][-2] == pytest.approx(0.42, abs=0.01)
    half = json.loads((await leadline("node", "n1", "--since", "1d", "-o", "json")).out)["history"]
    assert half["step_s"] == 1440
    assert (await leadline("node", "n1", "--since", "soon")).code == 2


async def test_the_budget_as_json_has_what_is_allowed_spent_and_left(leadline: Leadline) -> None:
    told = json.loads((await leadline("budget", "-o", "json")).out)
    node, uplink = told["nodes"][0], told["uplinks"][0]
    assert (node["name"], uplink["name"]) == ("n1", "lte")
    assert node["link_time_share"] == {"allowed": 0.001, "hour": 0.0009, "day": 0.0005, "all": 4e-4}
    assert node["bytes"]["day_left"] == node["bytes"]["allowed_per_day"] - node["bytes"]["day"]
    assert (node["tests"], node["age_s"], node["pings_per_minute"]) == (12, 100_000.0, 96.0)
    assert uplink["pings_per_minute"] is None
    (running,) = told["running"]
    assert running == {"client": "n1", "server": "n2", "max_bytes": 131_072, "uplinks": ["lte"]}


async def test_the_budget_of_a_standby_says_who_leads(
    harness: ControllerHarness, leadline: Leadline
) -> None:
    assert "stands by" not in (await leadline("budget")).out
    harness.turn.leading, harness.turn.named = False, "another"
    assert "stands by and runs no tests; leader: another" in (await leadline("budget")).out
    assert not json.loads((await leadline("budget", "-o", "json")).out)["leader"]


async def test_the_images_of_a_node_its_pulls_and_the_registries_are_listed(
    harness: ControllerHarness, leadline: Leadline
) -> None:
    state, web = harness.cluster, "reg.example/web:1"
    layers = {"": (Layer("base", 30.0), Layer("own", 10.0))}
    state.images.learn(web, f"reg.example/web@sha256:{'a' * 64}", layers)
    state.apply(PodChanged(Pod("default", "web", "u", node_name="n1", awaited_images=(web,))))
    state.images.observe(ImagePull("n1", "u", web))
    harness.registries = [RegistryStatus("reg.example", 2, 1, "reg.example: no such image", 299.0)]
    told = json.loads((await leadline("images", "-o", "json")).out)
    first = next(node for node in told["nodes"] if node["node"] == "n1")
    assert (first["queue_mb"], first["pull_mbps"], first["pulls"]) == (40.0, None, 0)
    (pulling,) = first["pulling"]
    assert (pulling["image"], pulling["missing_mb"]) == (web, 40.0)
    assert told["registries"] == [
        {
            "name": "reg.example",
            "wanted": 2,
            "images": 1,
            "why": "reg.example: no such image",
            "retry_s": 299.0,
        }
    ]
    state.images.observe(ImagePull("n1", "u", web, took_s=4.2, size_mb=40.0))
    wide = (await leadline("images", "-o", "wide")).out
    for shown in ("80", "0.2", "reg.example/web@sha256", "1 of 2", "no such image"):
        assert shown in wide
    harness.registries = []
    assert "no registry is asked" in (await leadline("images")).out


async def test_a_budget_without_boards_says_so(
    harness: ControllerHarness, leadline: Leadline
) -> None:
    harness.budget = ProbingStatus()
    assert (await leadline("budget")).out == "no node was probed yet\n"


@pytest.mark.parametrize(
    ("flag", "told", "kept_back"),
    [("--rtt", "rtt_ms", "bandwidth_mbps"), ("--bandwidth", "bandwidth_mbps", "rtt_ms")],
)
async def test_a_matrix_of_one_kind(
    leadline: Leadline, flag: str, told: str, kept_back: str
) -> None:
    (link,) = json.loads((await leadline("matrix", flag, "-o", "json")).out)["links"]
    assert told in link
    assert kept_back not in link


async def test_placements_since_a_duration(leadline: Leadline) -> None:
    recent = json.loads((await leadline("placements", "--since", "6s", "-o", "json")).out)
    assert [each["pod"] for each in recent["placements"]] == ["default/huge", "default/web-2"]
    assert recent["placements"][0]["node"] is None
    everything = await leadline("placements", "--since", "1.5h")
    assert len(everything.out.splitlines()) == 4


@pytest.mark.parametrize("span", ["soon", "0", "-5m", "10 m", "1w", "٣m"])
async def test_a_duration_that_cannot_be_read_is_bad_usage(leadline: Leadline, span: str) -> None:
    refused = await leadline("placements", "--since", span)
    assert refused.code == 2
    assert "--since" in refused.err
    assert len(refused.err.splitlines()) == 1


async def test_an_explanation_has_the_shape_of_a_scored_decision(leadline: Leadline) -> None:
    told = json.loads((await leadline("explain", "default/web-1", "-o", "json")).out)
    assert (told["pod"], told["node"], told["strategy"]) == ("default/web-1", "n1", "netsched")
    assert told["better"] == "higher"
    assert told["options"] == {"alpha": 0.5}
    assert told["scores"]["n1"]["parts"]["cpu_percent"] == 3.0
    assert told["scores"]["n3"] == {"total": None, "parts": {}}
    assert told["rejected"] == {"n2": ["NodeUnschedulable: the node is cordoned"]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["explain", "nobody"], "default/nobody"), (["node", "n9"], "no node 'n9'")],
)
async def test_an_unknown_name_is_exit_code_1(
    leadline: Leadline, arguments: list[str], said: str
) -> None:
    refused = await leadline(*arguments)
    assert (refused.code, refused.out) == (1, "")
    assert said in refused.err
    assert len(refused.err.splitlines()) == 1


async def test_pods_are_selected_by_their_labels_and_namespace(
    harness: ControllerHarness, leadline: Leadline
) -> None:
    harness.place(pod("web-3", labels={"app": "web"}), BOUND)
    harness.place(pod("db-1", namespace="shop", labels={"app": "db"}), BOUND)

    async def pods(*options: str) -> list[str]:
        return (await leadline("placements", "-o", "name", *options)).out.split()

    assert await pods() == await pods("-A")
    assert await pods("-l", "app") == ["pod/web-3", "pod/db-1"]
    assert await pods("-n", "shop") == ["pod/db-1"]
    assert await pods("-l", "app,app!=web") == ["pod/db-1"]
    assert await pods("-l", "app", "-n", "default") == ["pod/web-3"]
    assert (await leadline("placements", "-A", "-n", "shop")).code == 2


@pytest.mark.parametrize("command", ["nodes", "placements", "matrix", "budget", "images"])
async def test_a_selector_that_cannot_be_read_is_bad_usage(
    command: str, leadline: Leadline
) -> None:
    refused = await leadline(command, "-l", "rack in r1")
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "expected a=b" in refused.err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("node", "gest"), "guest"),
        (("matrix", "quest"), "guest"),
        (("explain", "web-l"), "default/web-1"),
        (("explain", "-n", "shop", "web-1"), "default/web-1"),
        (("nodez",), "nodes"),
        (("nodes", "--problem"), "--problems"),
    ],
    ids=repr,
)
async def test_a_wrong_name_is_answered_with_one_that_may_be_meant(
    arguments: tuple[str, ...], meant: str, leadline: Leadline
) -> None:
    refused = await leadline(*arguments)
    assert refused.code in (1, 2)
    assert "id you mean " in refused.err
    assert meant in refused.err.partition("id you mean ")[2]
    assert refused.err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("-o", "name", "nodes"),
        ("-oname", "nodes"),
        ("--output=name", "nodes"),
        ("nodes", "-o", "name"),
        ("--output", "name", "nodes", "--no-headers"),
    ],
)
async def test_options_may_stand_before_the_command(
    words: tuple[str, ...], address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for where in (("--address", address), (f"--address={address}",)):
        shown = await calling(capsys)(*where, *words)
        assert (shown.code, shown.err) == (0, "")
        assert shown.out.split() == ["node/guest", "node/n1", "node/n2", "node/n3"]


@pytest.mark.parametrize("command", [*LISTINGS, ["watch"]])
def test_without_a_controller_one_line_says_what_to_do(
    capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    address = f"127.0.0.1:{free_port()}"
    assert run([*command, "--address", address]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert f"cannot reach the controller at {address}" in line
    assert "leadline-controller run" in line
    assert "--address" in line


def test_the_address_comes_from_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("LEADLINE_ADDRESS", address)
    assert run(["nodes"]) == 3
    assert address in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--address", "somewhere"], "expected host:port"),
        (["--address", "192.0.2.1:25505"], "--ca, --cert and --key"),
        (["--ca", "ca.pem"], "give all three"),
        (["--ca", "none.pem", "--cert", "none.pem", "--key", "none.pem"], "cannot read none.pem"),
    ],
)
def test_connection_options_that_do_not_fit_are_bad_usage(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run(["nodes", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


async def test_with_certificates_a_tls_controller_answers(
    harness: ControllerHarness, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "ours")
    ours, own = authority.server("127.0.0.1"), authority.client("alice")
    stranger = Authority(tmp_path / "theirs").client("mallory")
    files = TlsFiles(ours.ca_file, ours.cert_file, ours.key_file)
    trust = ("--ca", str(own.ca_file))
    shown = ("--cert", str(own.cert_file), "--key", str(own.key_file))
    foreign = ("--cert", str(stranger.cert_file), "--key", str(stranger.key_file))
    async with answering(harness, ServeSettings("127.0.0.1:0", files)) as address:
        welcome = await end(await started("nodes", "--address", address, *trust, *shown))
        refused = await end(await started("nodes", "--address", address, *trust, *foreign))
        plain = await end(await started("nodes", "--address", address))
    assert welcome == (0, "")
    for code, errors in (refused, plain):
        assert code == 3
        assert len(errors.splitlines()) == 1  # none of gRPC's own lines about handshakes
    assert "it does not accept the certificate in --cert" in refused[1]
    assert "give --ca, --cert and --key" in plain[1]


async def started(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "leadline_controller.cli", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def end(process: asyncio.subprocess.Process) -> tuple[int, str]:
    """Its exit code and what it wrote to standard error."""
    _, errors = await asyncio.wait_for(process.communicate(), 90)
    assert process.returncode is not None
    return process.returncode, errors.decode()


async def interrupted(process: asyncio.subprocess.Process) -> tuple[int, str]:
    if process.returncode is None:
        process.send_signal(signal.SIGINT)
    return await end(process)


async def lines_until(process: asyncio.subprocess.Process, wanted: str) -> list[str]:
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or wanted not in lines[-1]:
        line = (await asyncio.wait_for(process.stdout.readline(), 90)).decode()
        assert line, f"the watch ended before it said {wanted!r}"
        lines.append(line)
    return lines


async def test_watch_shows_a_new_placement_and_ends_quietly(
    harness: ControllerHarness, address: str
) -> None:
    process = await started("watch", "--address", address)
    try:
        first = await lines_until(process, "default/web-2")
        assert any("n2: agent online" in line for line in first)
        harness.place(pod("web-3"), PENDING)
        told = await lines_until(process, "default/web-3")
        assert "default/web-3 -> n1 (pending): best in" in told[-1]
    finally:
        code, errors = await interrupted(process)
    assert (code, errors) == (0, "")


async def test_watch_as_json_is_one_object_a_line(address: str) -> None:
    process = await started("watch", "--address", address, "-o", "json")
    try:
        events = [json.loads(line) for line in await lines_until(process, "default/web-2")]
    finally:
        code, _ = await interrupted(process)
    assert code == 0
    assert events[0]["node"]["name"] == "guest"
    assert events[-1]["placement"]["outcome"] == "failed: the API server refused it"


async def test_watch_connects_again_and_shows_only_what_is_new(
    harness: ControllerHarness, tmp_path: Path
) -> None:
    settings = ServeSettings(f"unix:{tmp_path / 'socket'}")
    async with answering(harness, settings) as address:
        process = await started("watch", "--address", address)
        try:
            await lines_until(process, "default/web-2")
        except BaseException:
            await interrupted(process)
            raise
    try:
        assert process.stderr is not None
        told = (await asyncio.wait_for(process.stderr.readline(), 60)).decode()
        assert told == f"leadline: {address} has stopped answering; connecting again\n"
        harness.decisions.observe(PodDeleted(pod("web-1")))
        harness.cluster.apply(NodeDeleted("n3"))
        harness.now_s += 1  # ages are no news
        async with answering(harness, settings):
            gone, deleted = await lines_until(process, "default/web-1")
            assert gone.split()[1:] == ["gone", "node", "n3"]
            assert "default/web-1 -> n1 (deleted): " in deleted
            harness.place(pod("web-3"), PENDING)
            told_again = await lines_until(process, "default/web-3")
            assert not [line for line in told_again if "huge" in line or "node       n2" in line]
    finally:
        code, errors = await interrupted(process)
    assert (code, errors) in ((0, ""), (0, told))  # the second controller has ended, too


async def test_watch_of_placements_has_no_lines_about_nodes(
    harness: ControllerHarness, address: str
) -> None:
    process = await started("watch", "--only", "placements", "--address", address)
    try:
        told = await lines_until(process, "default/web-2")
        harness.report("n1", cpu_percent=99.0)
        harness.decisions.observe(PodDeleted(pod("web-1")))
        told += await lines_until(process, "(deleted)")
    finally:
        code, _ = await interrupted(process)
    assert code == 0
    assert len(told) == 4
    assert all("placement  default/" in line for line in told)


@pytest.mark.parametrize(
    ("options", "listed"),
    [
        (["-n", "default"], ["web-1", "huge", "web-2"]),
        (["-n", "elsewhere"], []),
        (["--node", "n1"], ["web-1", "web-2"]),
        (["--pending"], ["huge", "web-2"]),
        (["--limit", "1"], ["web-2"]),
        (["--strategy", "netsched", "--limit", "2"], ["huge", "web-2"]),
        (["--strategy", "dacs"], []),
        (["--node", "n1", "--pending", "--since", "1m"], ["web-2"]),
    ],
)
async def test_placements_can_be_chosen(
    leadline: Leadline, options: list[str], listed: list[str]
) -> None:
    told = json.loads((await leadline("placements", *options, "-o", "json")).out)
    assert [each["pod"] for each in told["placements"]] == [f"default/{each}" for each in listed]
    assert told.get("truncated", False) == ("--limit" in options)
    shown = await leadline("placements", *options)
    assert ("older decisions are left out: --limit" in shown.out) == ("--limit" in options)


async def test_a_limit_counts_what_is_listed_and_not_what_is_left_out(
    harness: ControllerHarness, leadline: Leadline
) -> None:
    for number in range(20):
        harness.place(pod(f"cron-{number}", namespace="jobs"), BOUND)
    told = json.loads(
        (await leadline("placements", "-n", "default", "--limit", "3", "-o", "json")).out
    )
    assert [each["pod"] for each in told["placements"]] == [
        *("default/web-1", "default/huge", "default/web-2")
    ]


async def test_pods_that_are_gone_are_not_bound_any_more(
    harness: ControllerHarness, leadline: Leadline
) -> None:
    harness.cluster.apply(PodDeleted(pod("web-1")))  # as if no controller had seen it
    harness.cluster.apply(PodDeleted(pod("huge")))
    told = json.loads((await leadline("placements", "-o", "json")).out)["placements"]
    assert [(each["pod"], each["outcome"]) for each in told[:2]] == [
        ("default/web-1", "deleted"),
        ("default/huge", "gone"),
    ]
    pending = json.loads((await leadline("placements", "--pending", "-o", "json")).out)
    assert [each["pod"] for each in pending["placements"]] == ["default/web-2"]


async def test_an_explanation_has_the_values_that_entered_the_score(leadline: Leadline) -> None:
    told = json.loads((await leadline("explain", "web-1", "-n", "default", "-o", "json")).out)
    measured = told["scores"]["n1"]["measured"]
    assert (measured["cpu_percent"], measured["memory_percent"]) == (12.5, 40.0)
    assert (measured["bandwidth_mbps"], measured["packets_sent_per_s"]) == (94.9, 120.0)
    shown = (await leadline("explain", "web-1")).out
    (row,) = [line for line in shown.splitlines() if line.startswith("n1  ")]
    assert {"12.5", "40", "94.9", "120", "80", "5000"} <= set(row.split())
    assert (await leadline("explain", "web-1", "-n", "elsewhere")).code == 1
