"""The configuration page names what the daemons accept, and wrong settings get clear errors."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from leadline_agent import config as agent
from leadline_controller import config as controller
from leadline_controller.api.home_assistant import PublishSettings
from leadline_controller.api.settings import (
    ExtenderSettings,
    HealthSettings,
    KedaSettings,
    MetricsSettings,
)
from leadline_controller.api.web_settings import WebSettings
from leadline_controller.probing.budgets import BandwidthBudget, Uplink

from tests.support.certificates import Authority
from tests.system.daemons import unreachable_kubeconfig

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def documented(daemon: str) -> dict[str, str]:
    """Field -> its default as the page writes it ("" where several fields share one)."""
    section = PAGE.read_text().split(f"\n## {daemon}:")[1].split("\n## ")[0]
    found: dict[str, str] = {}
    for line in section.splitlines():
        if not line.startswith("| `"):
            continue
        cell, default = (part.strip() for part in line.split("|")[1:3])
        names, defaults = list(full_names(cell)), default.split(", ")
        if len(names) != len(defaults):
            defaults = [default if len(names) == 1 else ""] * len(names)
        found |= dict(zip(names, defaults, strict=True))
    return found


def full_names(cell: str) -> Iterator[str]:
    """`a.b`, `.c` and `a.b`, `c` both read a.b, a.c."""
    prefix = ""
    for name in re.findall(r"`([^`]+)`", cell):
        if prefix and (name.startswith(".") or "." not in name):
            yield prefix + name.removeprefix(".")
        else:
            yield name
            prefix = name.rpartition(".")[0] + "." if "." in name else ""


def accepted(folder: Path, table: str = "") -> Iterator[str]:
    """Every field that the controller knows, asked of itself: what it says of an unknown one."""
    file = folder / "controller.toml"
    file.write_text(f"[{table}]\nnonsense = 1\n" if table else "nonsense = 1\n")
    try:
        controller.load(file)
    except controller.ConfigError as error:
        _, unknown, known = str(error).partition("unknown field; known: ")
    else:
        unknown, known = "", ""
    if not unknown:
        yield table
        return
    for name in known.split(", "):
        yield from accepted(folder, f"{table}.{name}" if table else name)


def test_the_page_names_the_agents_fields_and_no_others() -> None:
    assert sorted(documented("Agent")) == sorted(agent._FIELDS)


def test_the_page_names_the_controllers_fields_and_no_others(tmp_path: Path) -> None:
    names = documented("Controller")
    if names.pop("broker.*", None):
        names |= dict.fromkeys((name for name in agent._FIELDS if name.startswith("broker.")), "")
    assert sorted(names) == sorted(accepted(tmp_path))


def test_every_setting_of_the_controller_has_its_variable(tmp_path: Path) -> None:
    assert sorted({*controller.VARIABLES, "strategy.options", "probe.uplinks"}) == sorted(
        accepted(tmp_path)
    )


def test_the_page_tells_the_true_defaults(tmp_path: Path) -> None:
    agents = {name: field.default for name, field in agent._FIELDS.items()}
    default = controller.Settings()
    controllers = {
        "cluster": default.cluster,
        "warm_up_s": default.warm_up_s,
        "kubernetes.scheduler_name": default.scheduler_name,
        "strategy.name": default.strategy,
        "strategy.preferences": default.preferences,
        "grpc.address": default.serve.address,
        "extender.address": ExtenderSettings().address,
        **{
            f"images.{name}": getattr(default.images, name)
            for name in ("enabled", "requests_per_hour", "cache_mb")
        },
        "keda.address": KedaSettings().address,
        "keda.window_s": KedaSettings().window_s,
        "metrics.address": MetricsSettings().address,
        "metrics.peers": MetricsSettings().peers,
        "health.address": HealthSettings().address,
        "publish.home_assistant": PublishSettings().home_assistant,
        "publish.discovery_prefix": PublishSettings().discovery_prefix,
        "publish.interval_s": PublishSettings().interval_s,
        "web.address": WebSettings().address,
        "kubernetes.deletion_cost": default.deletion_cost,
        "kubernetes.preemption": default.preemption,
        "decisions.max_mb": default.decisions.max_mb,
        "decisions.max_age_days": default.decisions.max_age_days,
        **{f"probe.{name}": value for name, value in asdict(default.limits).items()},
        **{f"probe.{name}": value for name, value in asdict(default.budget).items()},
        **{f"ttl.{name}": value for name, value in asdict(default.ttl).items()},
    }
    assert plain_defaults("Agent", agents) == 8
    assert plain_defaults("Controller", controllers) == 35


def plain_defaults(daemon: str, real: Mapping[str, object]) -> int:
    """Compare those defaults that the page gives as a plain value; how many these were."""
    compared = 0
    for name, default in documented(daemon).items():
        value = re.fullmatch(r"`(\S+)`|([0-9.]+)|(false)", default)
        if value is None or name not in real:
            continue
        expected = real[name]
        text = value[1] or value[2] or value[3]
        if isinstance(expected, bool):
            assert text == str(expected).lower(), name
        elif isinstance(expected, int | float):
            assert float(text) == expected, name
        else:
            assert text == str(expected), name
        compared += 1
    return compared


def uplink(name: str, more: str = "") -> str:
    """A table of probe.uplinks; a list in `more` is its nodes."""
    nodes, field = (more, "") if more.startswith("[") else ('["n1", "n2"]', more)
    return f'[[probe.uplinks]]\nname = "{name}"\nnodes = {nodes}\n{field}'


WRONG = [
    ("cluster = 3", "cluster", "expected text, got 3"),
    ('cluster = "a/b"', "cluster", "expected letters, digits"),
    ("clutser = 3", "clutser", "unknown field; known: cluster, "),
    ("broker = 3", "broker", "expected an object, got 3"),
    ('broker.host = "broker.example"', "broker.tls", "expected ca_file, cert_file and key_file"),
    ("broker.port = 0", "broker.port", "expected a whole number from 1 to 65535, got 0"),
    ("broker.port = 1883.5", "broker.port", "expected a whole number from 1 to 65535"),
    ("broker.plaintext = 1", "broker.plaintext", "expected true or false, got 1"),
    ('rescheduling.mode = "on"', "rescheduling.mode", "expected one of off, manual, automatic"),
    ("rescheduling.mode = false", "rescheduling.mode", "automatic, got false"),
    ("rescheduling.min_gain = 2", "rescheduling.min_gain", "expected a finite number of 0 to 1"),
    ("rescheduling.timeout_s = 9", "rescheduling.timeout_s", "expected 10 seconds or more"),
    ("rescheduling.moves_per_hour = -1", "rescheduling.moves_per_hour", "from 0 to 200"),
    ("rescheduling.admins = 'me'", "rescheduling.admins", "expected a list"),
    ('broker.tls.ca_file = "/no/such"', "broker.tls.ca_file", "/no/such: No such file"),
    ('broker.tls.ca_file = "{ca}"', "broker.tls.cert_file", "expected a file; all three"),
    (
        '[broker.tls]\nca_file = "{ca}"\ncert_file = "{cert}"\nkey_file = "{stranger}"',
        "broker.tls",
        "expected PEM files and a key",
    ),
    ('kubernetes.kubeconfig = "/no/such"', "kubernetes.kubeconfig", "/no/such: No such file"),
    ("warm_up_s = -1", "warm_up_s", "expected a finite number of 0 or more, got -1"),
    ("warm_up_s = nan", "warm_up_s", "expected a finite number of 0 or more"),
    ('strategy.name = "best"', "strategy.name", "expected one of netsched, dacs"),
    ("strategy.options.alpha = 2", "strategy.options", "expected a number from 0 to 1, got 2"),
    ("strategy.options.alhpa = 1", "strategy.options", "this strategy has: alpha"),
    ("strategy.seed = 1.5", "strategy.seed", "expected a whole number"),
    ('strategy.preferences = "maybe"', "strategy.preferences", "or a number of 0 to 1e+15"),
    ("strategy.preferences = -1", "strategy.preferences", 'expected "on", "off" or a number'),
    ("strategy.preferences = nan", "strategy.preferences", "or a number of 0 to 1e+15"),
    ("strategy.preferences = true", "strategy.preferences", 'expected "on", "off" or a number'),
    ('probe.anchors = "n1"', "probe.anchors", "expected a list, got text 'n1'"),
    ("probe.port = 80", "probe.port", "expected a whole number from 1024 to 65535, got 80"),
    ("probe.interval_s = 0.1", "probe.interval_s", "expected a number of 1 or more, got 0.1"),
    (
        "probe.link_time_share = 0.2",
        "probe.link_time_share",
        "expected a finite number of 0 to 0.1, got 0.2",
    ),
    ("probe.link_time_share = -0.001", "probe.link_time_share", "expected a finite number of 0 to"),
    ("probe.bytes_per_day = 1.5", "probe.bytes_per_day", "expected a whole number from 0 to"),
    ("probe.bytes_per_day = -1", "probe.bytes_per_day", "expected a whole number from 0 to"),
    ('probe.uplinks = "lte"', "probe.uplinks", "expected a list, got text 'lte'"),
    ('probe.uplinks = ["lte"]', "probe.uplinks[0]", "expected an object, got text 'lte'"),
    ('[[probe.uplinks]]\nnodes = ["n1"]', "probe.uplinks[0].name", "expected text, got nothing"),
    ('[[probe.uplinks]]\nname = ""', "probe.uplinks[0].name", "expected a name that no other"),
    ('[[probe.uplinks]]\nname = "lte"', "probe.uplinks[0].nodes", "expected the names of one"),
    (uplink("lte", "[]"), "probe.uplinks[0].nodes", "expected the names of one node or more"),
    (uplink("lte", '["n1", ""]'), "probe.uplinks[0].nodes[1]", "expected a node's name"),
    (uplink("lte", "mbps = 0"), "probe.uplinks[0].mbps", "expected a number above 0, got 0"),
    (uplink("lte", "mbps = 1e9"), "probe.uplinks[0].mbps", "expected a finite number of 0 to"),
    (uplink("lte", "bytes_per_day = -1"), "probe.uplinks[0].bytes_per_day", "expected a whole"),
    (uplink("lte", "speed = 20"), "probe.uplinks[0].speed", "unknown field; known: name, nodes"),
    (
        f"{uplink('lte')}\n{uplink('lte')}",
        "probe.uplinks[1].name",
        "expected a name that no other uplink has, got text 'lte'",
    ),
    ("probe.ping_interval_s = 1e12", "probe.ping_interval_s", "expected a whole number"),
    ("ttl.report_s = true", "ttl.report_s", "expected a number, got true"),
    ('probe.networks = "10.0.0.0/24"', "probe.networks", "expected a list"),
    ('probe.networks = ["10.0.0.1/24"]', "probe.networks[0]", "expected a network such as"),
    ('probe.networks = ["::/0", ""]', "probe.networks[1]", "expected a network such as"),
    ('probe.networks = ["all"]', "probe.networks[0]", "expected a network such as"),
    ('probe.networks = ["10.0.0.0/33"]', "probe.networks[0]", "expected a network such as"),
    ('grpc.address = "0.0.0.0:25505"', "grpc.address", "needs TLS with client certificates"),
    (
        '[grpc.tls]\nca_file = "{ca}"\ncert_file = "{cert}"\nkey_file = "{stranger}"',
        "grpc.tls",
        "expected PEM files and a key",
    ),
    ('grpc.address = "25505"', "grpc.address", "expected host:port"),
    (
        'extender.address = "0.0.0.0:25506"',
        "extender.address",
        "needs TLS with client certificates",
    ),
    ('extender.address = "unix:/run/x"', "extender.address", "kube-scheduler takes host:port"),
    (
        "extender.bind = true",
        "extender.bind",
        "expected false without extender.tls, because only clients",
    ),
    ('extender.bind = "yes"', "extender.bind", "expected true or false, got text 'yes'"),
    ('extender.filters = "some"', "extender.filters", "expected own or all, got text 'some'"),
    ('extender.tls.ca_file = "{ca}"', "extender.tls.cert_file", "expected a file; all three"),
    ("kubernetes.standalone = false", "kubernetes.standalone", "or a section [extender] beside"),
    ('keda.address = "0.0.0.0:25507"', "keda.address", "needs TLS with client certificates"),
    ('keda.address = "unix:/run/x"', "keda.address", "KEDA's scalerAddress is host:port"),
    ('keda.requests_urls = ["file:///x"]', "keda.requests_urls[0]", "expected a URL such as"),
    ('keda.requests_urls = ["http://u:p@h/"]', "keda.requests_urls[0]", "expected a URL such as"),
    ('publish.home_assistant = "yes"', "publish.home_assistant", "expected true or false"),
    ("publish.interval_s = 0.5", "publish.interval_s", "expected a number of 1 to 3600"),
    ("publish.interval_s = nan", "publish.interval_s", "expected a finite number"),
    ('publish.discovery_prefix = ""', "publish.discovery_prefix", "expected topic levels such as"),
    ('publish.discovery_prefix = "a/#"', "publish.discovery_prefix", "without + and #"),
    ('publish.discovery_prefix = "a//b"', "publish.discovery_prefix", "expected topic levels"),
    ('publish.discovery_prefix = "$SYS"', "publish.discovery_prefix", "expected topic levels"),
    ('publish.discovery_prefix = "a\\u0000"', "publish.discovery_prefix", "topic levels"),
    ('publish.discovery_prefix = "leadline"', "publish.discovery_prefix", "not leadline"),
    ('web.address = "0.0.0.0:25509"', "web.address", "needs TLS"),
    ('web.address = "unix:/run/x"', "web.address", "browsers take host:port only"),
    ('web.password_file = "/no/such"', "web.password_file", "No such file"),
    ('web.password_file = "/dev/null"', "web.password_file", "others may read it"),
    ('web.tls = {cert_file = "/no/such"}', "web.tls.key_file", "expected a file"),
    ("keda.window_s = 0.5", "keda.window_s", "expected a number of 1 to 3600"),
    ('metrics.address = "0.0.0.0:25508"', "metrics.address", "needs TLS with client certificates"),
    ('metrics.address = "unix:/run/x"', "metrics.address", "Prometheus takes host:port only"),
    ('health.address = "25510"', "health.address", "expected host:port"),
    ('health.address = "unix:/run/x"', "health.address", "kubelet takes host:port only"),
    ('metrics.links = "some"', "metrics.links", "expected nearest or all"),
    ("metrics.peers = 65", "metrics.peers", "expected a whole number"),
    ('kubernetes.deletion_cost = "yes"', "kubernetes.deletion_cost", "expected true or false"),
    ('kubernetes.preemption = "yes"', "kubernetes.preemption", "expected true or false"),
    ('strategy.profiles = "here.json"', "strategy.profiles", "expected an absolute path of a file"),
    ('strategy.profiles = "/none/x.json"', "strategy.profiles", "there is no such file"),
    ('decisions.path = "here.db"', "decisions.path", "expected an absolute path of a file"),
    ('decisions.path = "/a\\u0000b"', "decisions.path", "expected an absolute path of a file"),
    ("decisions.max_mb = -1", "decisions.max_mb", "expected a whole number from 0 to 1048576"),
    ("decisions.max_age_days = 1e9", "decisions.max_age_days", "expected a finite number of 0 to"),
    ("cluster = ", "", "expected TOML: "),
    ("\udcff", "", "expected TOML: "),
]


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    authority = Authority(tmp_path_factory.mktemp("pem"))
    mine, stranger = authority.client("mine"), authority.client("stranger")
    return {
        "ca": str(mine.ca_file),
        "cert": str(mine.cert_file),
        "key": str(mine.key_file),
        "stranger": str(stranger.key_file),
    }


@pytest.mark.parametrize(("text", "field", "expected"), WRONG, ids=[repr(w[0]) for w in WRONG])
def test_a_wrong_setting_is_told_with_file_field_and_what_was_expected(
    text: str, field: str, expected: str, tmp_path: Path, pem: Mapping[str, str]
) -> None:
    for name, path in pem.items():
        text = text.replace(f"{{{name}}}", path)
    file = tmp_path / "controller.toml"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(controller.ConfigError) as raised:
        controller.load(file)
    message = str(raised.value)
    assert message.startswith(f"{file}: {field}")
    assert expected in message
    assert "\n" not in message


def run_controller(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "leadline_controller", *arguments]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("KUBERNETES_")}
    with TemporaryDirectory() as state:
        environ["STATE_DIRECTORY"] = state
        return subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60)


def test_the_daemon_ends_with_2_and_one_line_on_a_wrong_file(tmp_path: Path) -> None:
    file = tmp_path / "controller.toml"
    file.write_text("probe.port = 80\n")
    ended = run_controller("run", "--config", str(file))
    problem = "probe.port: expected a whole number from 1024 to 65535, got 80"
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"leadline-controller: {file}: {problem}\n"


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(controller.ConfigError, match=r"none\.toml: there is no such file"):
        controller.load(tmp_path / "none.toml")


def test_an_address_that_is_taken_fails_with_1_and_one_line(
    tmp_path: Path, pem: Mapping[str, str]
) -> None:
    kubeconfig, file = unreachable_kubeconfig(tmp_path, pem["ca"]), tmp_path / "controller.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        file.write_text(f"kubernetes.kubeconfig = '{kubeconfig}'\ngrpc.address = '{address}'\n")
        ended = run_controller("run", "--config", str(file))
    assert ended.returncode == 1
    lines = [line for line in ended.stderr.splitlines() if "no broker at" not in line]
    assert lines == [
        f"leadline-controller: grpc address {address}: cannot listen there; is it in use by "
        "another program?"
    ]


def test_without_a_kubeconfig_outside_a_cluster_it_says_which_setting_is_missing(
    tmp_path: Path,
) -> None:
    file = tmp_path / "controller.toml"
    file.write_text("")
    ended = run_controller("run", "--config", str(file))
    assert ended.returncode == 2
    assert "kubernetes.kubeconfig is not set" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_settings_that_are_right_are_taken_over(tmp_path: Path) -> None:
    file = tmp_path / "controller.toml"
    file.write_text(
        'cluster = "attic"\n[broker]\nhost = "10.0.0.2"\nplaintext = true\n'
        '[strategy]\nname = "netsched"\nseed = 3\n[strategy.options]\nbandwidth = 4\n'
        '[probe]\nanchors = ["n1"]\nport = 6000\ninterval_s = 2.5\n[ttl]\nrtt_s = 9\n'
    )
    settings = controller.load(file)
    assert (settings.cluster, settings.broker_host, settings.broker_port) == (
        "attic",
        "10.0.0.2",
        1883,
    )
    assert (settings.strategy, settings.seed) == ("netsched", 3)
    assert settings.options == {"bandwidth": 4}
    assert (settings.limits.port, settings.limits.interval_s) == (6000, 2.5)
    assert settings.anchors == ("n1",)
    assert (settings.budget, settings.uplinks) == (BandwidthBudget(), ())
    assert (settings.ttl.rtt_s, settings.ttl.report_s) == (9, 60)
    assert (settings.standalone, settings.extender) == (True, None)


def test_the_budget_of_bandwidth_tests_is_taken_over(tmp_path: Path) -> None:
    file = tmp_path / "controller.toml"
    file.write_text(
        "[probe]\nlink_time_share = 0\nbytes_per_day = 5000000\n"
        + uplink("lte", "mbps = 20\nbytes_per_day = 0\n")
        + uplink("hall", '["n2"]')
    )
    settings = controller.load(file, {"LEADLINE_PROBE_BYTES_PER_DAY": "6000000"})
    assert settings.budget == BandwidthBudget(link_time_share=0.0, bytes_per_day=6_000_000)
    assert settings.uplinks == (
        Uplink("lte", frozenset({"n1", "n2"}), mbps=20.0, bytes_per_day=0),
        Uplink("hall", frozenset({"n2"})),
    )


def test_the_pages_example_of_an_uplink_is_one(tmp_path: Path) -> None:
    tables = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (example,) = (table for table in tables if "[[probe.uplinks]]" in table)
    file = tmp_path / "controller.toml"
    file.write_text(example)
    (read,) = controller.load(file).uplinks
    assert (read.name, read.mbps, read.bytes_per_day) == ("lte", 20.0, 20_000_000)


def test_the_extender_is_offered_where_its_section_is_there(
    tmp_path: Path, pem: Mapping[str, str]
) -> None:
    file = tmp_path / "controller.toml"
    file.write_text("kubernetes.standalone = false\n[extender]\n")
    settings = controller.load(file)
    assert (settings.standalone, settings.extender) == (False, ExtenderSettings())
    file.write_text(
        '[extender]\naddress = "0.0.0.0:1"\nfilters = "all"\nbind = true\n[extender.tls]\n'
        f'ca_file = "{pem["ca"]}"\ncert_file = "{pem["cert"]}"\nkey_file = "{pem["key"]}"\n'
    )
    extender = controller.load(file).extender
    assert extender is not None
    assert (extender.host, extender.port, extender.every_filter) == ("0.0.0.0", 1, True)
    assert extender.bind


def test_states_are_published_if_the_section_says_so(tmp_path: Path) -> None:
    file = tmp_path / "controller.toml"
    file.write_text("")
    assert controller.load(file).publish is None
    file.write_text("[publish]\n")
    assert controller.load(file).publish == PublishSettings(home_assistant=False)
    file.write_text('[publish]\nhome_assistant = true\ndiscovery_prefix = "a/b"\ninterval_s = 5\n')
    assert controller.load(file).publish == PublishSettings(
        home_assistant=True, discovery_prefix="a/b", interval_s=5.0
    )


def test_variables_win_over_the_file(tmp_path: Path, pem: Mapping[str, str]) -> None:
    file = tmp_path / "controller.toml"
    file.write_text('cluster = "attic"\n[broker]\nhost = "10.0.0.2"\n[probe]\nport = 6000\n')
    environ = {
        "LEADLINE_BROKER_TLS_CA_FILE": pem["ca"],
        "LEADLINE_BROKER_TLS_CERT_FILE": pem["cert"],
        "LEADLINE_BROKER_TLS_KEY_FILE": pem["key"],
        "LEADLINE_KUBERNETES_KUBECONFIG": pem["ca"],
        "LEADLINE_KUBERNETES_STANDALONE": "false",
        "LEADLINE_EXTENDER_ADDRESS": "127.0.0.1:1",
        "LEADLINE_PROBE_PORT": "7000",
        "LEADLINE_PROBE_ANCHORS": "n1, n2",
        "LEADLINE_TTL_RTT_S": "2.5",
        "STATE_DIRECTORY": "/state:/other",
    }
    settings = controller.load(file, environ)
    assert (settings.cluster, settings.broker_host, settings.broker_port) == (
        *("attic", "10.0.0.2"),
        8883,
    )
    assert settings.broker_tls is not None
    assert str(settings.broker_tls.key_file) == pem["key"]
    assert settings.kubeconfig == Path(pem["ca"])
    assert (settings.standalone, settings.extender) == (False, ExtenderSettings("127.0.0.1:1"))
    assert (settings.limits.port, settings.anchors, settings.ttl.rtt_s) == (7000, ("n1", "n2"), 2.5)
    assert settings.decisions.path == Path("/state/decisions.db")


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"LEADLINE_PROBE_PORT": "80"},
            "the environment (LEADLINE_PROBE_PORT): probe.port: expected a whole number from 1024 "
            "to 65535, got 80",
        ),
        (
            {"LEADLINE_TTL_RTT_S": "soon"},
            "the environment (LEADLINE_TTL_RTT_S): ttl.rtt_s: expected a number, got text 'soon'",
        ),
        (
            {"LEADLINE_BROKER_PLAINTEXT": "yes"},
            "the environment (LEADLINE_BROKER_PLAINTEXT): broker.plaintext: expected true or "
            "false, got text 'yes'",
        ),
        (
            {"LEADLINE_GRPC_TLS_CA_FILE": "/no/such"},
            "the environment (LEADLINE_GRPC_TLS_CA_FILE): grpc.tls.ca_file: /no/such: No such file "
            "or directory",
        ),
        ({"LEADLINE_CLUSTER": "a/b"}, "the environment (LEADLINE_CLUSTER): cluster 'a/b': "),
        ({}, "{file}: ttl: expected an object, got 3"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_a_wrong_variable_is_told_by_its_name(
    environ: Mapping[str, str], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "controller.toml"
    file.write_text("" if environ else "ttl = 3\n")
    with pytest.raises(controller.ConfigError) as error:
        controller.load(file, environ or {"LEADLINE_TTL_RTT_S": "3"})
    assert str(error.value).startswith(message.format(file=file))
