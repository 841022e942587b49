"""The configuration page names what the daemons accept, and wrong settings get clear errors."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import MISSING
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from leadline_agent import config as agent
from leadline_controller import settings as controller
from leadline_controller.homeassistant.messages import PublishSettings
from leadline_controller.parsing.settings import LARGEST
from leadline_controller.probing.budgets import BandwidthBudget, Uplink
from leadline_controller.serve.settings import ExtenderSettings
from leadline_controller.setting_rows import Row, rows
from leadline_controller.settings import Settings

from tests.support.certificates import Authority
from tests.system.daemons import unreachable_kubeconfig

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def documented() -> dict[str, str]:
    """The agent's fields and their defaults as the page writes them ("" where fields share one)."""
    section = PAGE.read_text().split("\n## Agent:")[1].split("\n## ")[0]
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
    """`a.b`, `.c` reads a.b, a.c."""
    prefix = ""
    for name in re.findall(r"`([^`]+)`", cell):
        if name.startswith("."):
            yield prefix + name
        else:
            yield name
            prefix = name.rpartition(".")[0]


def test_the_page_names_the_agents_fields_and_no_others() -> None:
    assert sorted(documented()) == sorted(agent._FIELDS)


def test_the_page_tells_the_agents_true_defaults() -> None:
    compared = 0
    for name, default in documented().items():
        real = agent._FIELDS[name].default
        if (value := re.fullmatch(r"`(\S+)`|([0-9.]+)|(false)", default)) is None:
            continue
        text = value[1] or value[2] or value[3]
        assert text == (str(real).lower() if isinstance(real, bool) else str(real)), name
        compared += 1
    assert compared == 8


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
    ("broker.plaintext = 1", "broker.plaintext", "expected true or false, got 1"),
    ('rescheduling.mode = "on"', "rescheduling.mode", "expected one of off, manual, automatic"),
    ('broker.tls.ca_file = "/no/such"', "broker.tls.ca_file", "/no/such: No such file"),
    (
        'broker.tls.ca_file = "{ca}"',
        "broker.tls.cert_file",
        "expected the controller's certificate",
    ),
    (
        '[broker.tls]\nca_file = "{ca}"\ncert_file = "{cert}"\nkey_file = "{stranger}"',
        "broker.tls",
        "expected PEM files and a key",
    ),
    ('kubernetes.kubeconfig = "/no/such"', "kubernetes.kubeconfig", "/no/such: No such file"),
    ("warm_up_s = -1", "warm_up_s", "expected a finite number of 0 or more, got -1"),
    ('strategy.name = "best"', "strategy.name", "expected one of leadline, netsched"),
    (
        'strategy = {name = "dacs", options = {alpha = 2}}',
        "strategy.options",
        "expected a number from 0 to 1, got 2",
    ),
    (
        'strategy = {name = "dacs", options = {alhpa = 1}}',
        "strategy.options",
        "this strategy has: alpha",
    ),
    ('shadow.strategies = ["best"]', "shadow.strategies[0]", "expected one of leadline, netsched"),
    (
        'shadow.strategies = ["kubedsm"]',
        "shadow.strategies[0]",
        "a strategy that decides pod by pod",
    ),
    (
        'strategy.name = "dacs"\nshadow.strategies = ["dacs"]',
        "shadow.strategies[0]",
        "another strategy than the one in force",
    ),
    ('shadow.strategies = ["nas", "nas"]', "shadow.strategies[1]", "each strategy once"),
    ("shadow.share = 0.9", "shadow.share", "expected a finite number of 0.001 to 0.5"),
    (
        '[shadow]\nstrategies = ["nas"]\noptions = {nas = 3}',
        "shadow.options.nas",
        "expected a table",
    ),
    (
        '[shadow]\nstrategies = ["dacs"]\noptions = {dacs = {alpha = 2}}',
        "shadow.options.dacs",
        "expected a number from 0 to 1, got 2",
    ),
    (
        '[shadow]\nstrategies = ["nas"]\noptions = {dacs = {alpha = 1}}',
        "shadow.options.dacs",
        "unknown field; known: nas",
    ),
    ('strategy.preferences = "maybe"', "strategy.preferences", "or a number of 0 to 1e+15"),
    ('probe.anchors = "n1"', "probe.anchors", "expected a list, got text 'n1'"),
    ('probe.uplinks = "lte"', "probe.uplinks", "expected a list, got text 'lte'"),
    ('probe.uplinks = ["lte"]', "probe.uplinks[0]", "expected an object, got text 'lte'"),
    ('[[probe.uplinks]]\nnodes = ["n1"]', "probe.uplinks[0].name", "expected a name that"),
    ('[[probe.uplinks]]\nname = ""', "probe.uplinks[0].name", "expected a name, without"),
    ('[[probe.uplinks]]\nname = "lte"', "probe.uplinks[0].nodes", "expected the names of one"),
    (uplink("lte", "[]"), "probe.uplinks[0].nodes", "expected the names of one node or more"),
    (uplink("lte", '["n1", ""]'), "probe.uplinks[0].nodes[1]", "expected a name, without"),
    (uplink("lte", "mbps = 0"), "probe.uplinks[0].mbps", "expected a finite number of 0.001 to"),
    (uplink("lte", "mbps = 1e9"), "probe.uplinks[0].mbps", "a finite number of 0.001 to"),
    (uplink("lte", "speed = 20"), "probe.uplinks[0].speed", "unknown field; known: name, nodes"),
    (
        f"{uplink('lte')}\n{uplink('lte')}",
        "probe.uplinks[1].name",
        "expected a name that no other uplink has, got text 'lte'",
    ),
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
    ('extender.address = "unix:/run/x"', "extender.address", "expected host:port only"),
    (
        "extender.bind = true",
        "extender.address",
        "only those with a certificate may have pods bound; configure certificates beside bind",
    ),
    (
        'extender.tls.ca_file = "{ca}"',
        "extender.tls.cert_file",
        "expected the server's certificate",
    ),
    ("kubernetes.standalone = false", "kubernetes.standalone", "or a section [extender] beside"),
    ('keda.address = "0.0.0.0:25507"', "keda.address", "needs TLS with client certificates"),
    ('keda.address = "unix:/run/x"', "keda.address", "expected host:port only"),
    ('keda.requests_urls = ["file:///x"]', "keda.requests_urls[0]", "expected a URL such as"),
    ('keda.requests_urls = ["http://u:p@h/"]', "keda.requests_urls[0]", "expected a URL such as"),
    ('publish.discovery_prefix = ""', "publish.discovery_prefix", "expected topic levels such as"),
    ('publish.discovery_prefix = "a/#"', "publish.discovery_prefix", "without + and #"),
    ('publish.discovery_prefix = "a//b"', "publish.discovery_prefix", "expected topic levels"),
    ('publish.discovery_prefix = "$SYS"', "publish.discovery_prefix", "expected topic levels"),
    ('publish.discovery_prefix = "a\\u0000"', "publish.discovery_prefix", "topic levels"),
    ('publish.discovery_prefix = "leadline"', "publish.discovery_prefix", "not leadline"),
    ('web.address = "0.0.0.0:25509"', "web.address", "needs TLS"),
    ('web.address = "unix:/run/x"', "web.address", "expected host:port only"),
    ('web.password_file = "/no/such"', "web.password_file", "No such file"),
    ('web.password_file = "/dev/null"', "web.password_file", "others may read it"),
    ('web.tls = {cert_file = "{cert}"}', "web.tls.key_file", "expected its key"),
    ('notify.url = "ntfy.sh/topic"', "notify.url", "expected a URL such as"),
    ('notify.url = "https://u:p@h/topic"', "notify.url", "without a login"),
    ('notify.url = "https://[h/topic"', "notify.url", "Invalid IPv6 URL"),
    ('notify = {kind = "ntfy", url = "https://h/"}', "notify.url", "expected a topic at its end"),
    ('notify = {kind = "gotify", url = "https://h"}', "notify.token_file", "file with the token"),
    ('notify.url = "https://h/{token}"', "notify.token_file", "file with the token"),
    ('notify.token_file = "/no/such"', "notify.token_file", "No such file"),
    ('notify.token_file = "/dev/null"', "notify.token_file", "others may read it"),
    (
        'notify = {url = "http://h", token_file = "{key}"}',
        "notify.token_file",
        "expected one line with the token",
    ),
    ('notify.ca_file = "/dev/null"', "notify.ca_file", "expected a PEM file"),
    ('metrics.address = "0.0.0.0:25508"', "metrics.address", "needs TLS with client certificates"),
    ('metrics.address = "unix:/run/x"', "metrics.address", "expected host:port only"),
    ('health.address = "25510"', "health.address", "expected host:port"),
    ('health.address = "unix:/run/x"', "health.address", "expected host:port only"),
    ('strategy.profiles = "here.json"', "strategy.profiles", "expected an absolute path of a file"),
    ('strategy.profiles = "/none/x.json"', "strategy.profiles", "there is no such file"),
    ('recording.folder = "here"', "recording.folder", "expected an absolute path of a file"),
    ('decisions.path = "here.db"', "decisions.path", "expected an absolute path of a file"),
    ('decisions.path = "/a\\u0000b"', "decisions.path", "expected an absolute path of a file"),
    ("cluster = ", "", "expected TOML: "),
    ("\udcff", "", "expected UTF-8 text, byte 0 is not"),
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


def test_a_token_goes_to_another_machine_only_over_tls(tmp_path: Path) -> None:
    token, file = tmp_path / "token", tmp_path / "controller.toml"
    token.write_text("tk-1\n")
    token.chmod(0o600)
    notify = f"notify.token_file = '{token}'\nnotify.url = "
    file.write_text(f"{notify}'http://ntfy.lan/topic'")
    with pytest.raises(controller.ConfigError, match=r"notify\.url: expected https"):
        controller.load(file, {})
    for safe in (
        "https://ntfy.lan/t",
        "http://localhost/t",
        "http://h/t'\nnotify.plaintext = true#",
    ):
        file.write_text(f"{notify}'{safe}'" if "#" not in safe else f"{notify}'{safe}")
        settings = controller.load(file, {})
        assert settings.notify.token is not None
        assert "tk-1" not in repr(settings)


def wrong_values(row: Row) -> Iterator[str]:
    """Values of the wrong type or outside of the range, in TOML."""
    if row.type == str | float or row.words:
        yield from ('"nonsense"', "false", "nan", "-1")
    elif row.type is bool:
        yield from ("1", '"yes"')
    elif row.type in (int, float):
        least, most = row.declared.least, row.declared.most
        yield from ("true", '"1"', "nan", f"{least - 1}")
        if most != LARGEST:
            yield f"{most + 1}"
    else:
        yield "3"


def required_beside(row: Row) -> list[str]:
    """Lines with the settings that a section must have, beside one of its settings."""
    section = row.path.rpartition(".")[0]
    return [
        f"{each.path} = '/dev/null'"
        for each in rows(Settings)
        if each.default is MISSING and each.path.rpartition(".")[0] == section and each != row
    ]


@pytest.mark.parametrize("row", rows(Settings), ids=lambda row: row.path)
def test_a_value_of_another_type_or_out_of_range_is_told(row: Row, tmp_path: Path) -> None:
    file, others = tmp_path / "controller.toml", required_beside(row)
    for value in wrong_values(row):
        file.write_text("\n".join([*others, f"{row.path} = {value}"]))
        with pytest.raises(controller.ConfigError) as raised:
            controller.load(file, {})
        assert str(raised.value).startswith(f"{file}: {row.path}: expected "), value
        assert ", got " in str(raised.value), value


@pytest.mark.parametrize(
    "row", [row for row in rows(Settings) if row.type in (int, float)], ids=lambda row: row.path
)
def test_both_ends_of_a_range_are_in_it(row: Row, tmp_path: Path) -> None:
    file, others = tmp_path / "controller.toml", required_beside(row)
    for value in (row.declared.least, row.declared.most):
        file.write_text("\n".join([*others, f"{row.path} = {value}"]))
        controller.load(file, {})


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
    away = ("no broker at", "can't be reached")
    lines = [x for x in ended.stderr.splitlines() if not any(each in x for each in away)]
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


def test_a_recording_is_beside_the_file_of_decisions(tmp_path: Path) -> None:
    path = tmp_path / "controller.toml"
    path.write_text('decisions.path = "/ssd/decisions.db"\n')
    found = controller.load(path, {}).recording
    assert not found.enabled
    assert found.folder == Path("/ssd/recordings")
    path.write_text('[recording]\nenabled = true\nfolder = "/ssd/r"\nmax_mb = 20\nfile_mb = 2\n')
    found = controller.load(path, {}).recording
    assert (found.enabled, found.folder) == (True, Path("/ssd/r"))
    assert (found.max_mb, found.file_mb) == (20, 2)
    found = controller.load(path, {"LEADLINE_RECORDING_ENABLED": "false"}).recording
    assert not found.enabled


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
        (
            {"LEADLINE_CLUSTER": "a/b"},
            "the environment (LEADLINE_CLUSTER): cluster: cluster 'a/b': ",
        ),
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
