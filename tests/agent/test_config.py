"""Settings: sources, defaults and errors."""

import os
from pathlib import Path

import pytest
from leadline_agent.config import Broker, ConfigError, Settings, load

LOCAL = 'node = "pi-1"\n'


def load_text(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> Settings:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    return load(path, environ or {})


def tls_files(tmp_path: Path) -> str:
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).write_text("")
    return (
        f'[broker.tls]\nca_file = "{tmp_path}/ca.pem"\n'
        f'cert_file = "{tmp_path}/cert.pem"\nkey_file = "{tmp_path}/key.pem"\n'
    )


def test_everything_has_a_default_and_the_broker_is_this_machine(tmp_path: Path) -> None:
    settings = load_text(tmp_path, LOCAL)
    assert (settings.node, settings.cluster, settings.interval_s) == ("pi-1", "default", 10)
    assert settings.broker == Broker("localhost", 1883, None)
    assert settings.state_dir == Path("/var/lib/leadline-agent")


def test_the_default_file_may_be_absent_but_a_named_one_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = tmp_path / "agent.toml"
    monkeypatch.setattr("leadline_agent.config.DEFAULT_PATH", absent)
    assert load(None, {"LEADLINE_NODE": "pi-9"}).node == "pi-9"
    with pytest.raises(ConfigError, match="there is no such file"):
        load(absent, {})


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    environ = {"LEADLINE_INTERVAL_S": "3", "LEADLINE_BROKER_PORT": "1999", "LEADLINE_OTHER": "x"}
    settings = load_text(tmp_path, LOCAL + "interval_s = 60\n", environ)
    assert (settings.interval_s, settings.broker.port) == (3, 1999)


def test_systemds_state_directory_wins(tmp_path: Path) -> None:
    environ = {"STATE_DIRECTORY": "/var/lib/private/x:/other", "LEADLINE_STATE_DIR": "/mine"}
    assert load_text(tmp_path, LOCAL, environ).state_dir == Path("/var/lib/private/x")


def test_tls_changes_the_default_port(tmp_path: Path) -> None:
    text = LOCAL + '[broker]\nhost = "mqtt.lan"\n' + tls_files(tmp_path)
    broker = load_text(tmp_path, text).broker
    assert broker.port == 8883
    assert broker.tls is not None
    assert broker.tls.key_file == tmp_path / "key.pem"


def test_plaintext_to_another_machine_must_be_set(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"broker\.tls: expected ca_file, cert_file and key_file"):
        load_text(tmp_path, LOCAL + '[broker]\nhost = "192.168.1.5"\n')
    text = LOCAL + '[broker]\nhost = "192.168.1.5"\nplaintext = true\n'
    assert load_text(tmp_path, text).broker.tls is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_this_machine_needs_no_tls(tmp_path: Path, host: str) -> None:
    assert load_text(tmp_path, LOCAL + f'[broker]\nhost = "{host}"\n').broker.tls is None


@pytest.mark.parametrize("host", ["localhost.evil.example", "10.0.0.1", "fd00::1"])
def test_a_host_that_only_resembles_this_machine_needs_tls(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match=r"broker\.tls"):
        load_text(tmp_path, LOCAL + f'[broker]\nhost = "{host}"\n')


def test_plaintext_and_tls_contradict_each_other(tmp_path: Path) -> None:
    text = LOCAL + '[broker]\nhost = "mqtt.lan"\nplaintext = true\n' + tls_files(tmp_path)
    with pytest.raises(ConfigError, match=r"broker\.plaintext: expected false"):
        load_text(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "field", "expected"),
    [
        ("interval_s = 0\n", "interval_s", "a whole number of seconds from 1 to 3600"),
        ("interval_s = true\n", "interval_s", "a whole number of seconds"),
        ("interval_s = 1.5\n", "interval_s", "a whole number of seconds"),
        ('interval_s = "often"\n', "interval_s", "a whole number of seconds"),
        ('node = "a/b"\n', "node", "letters, digits"),
        ('node = "+"\n', "node", "letters, digits"),
        ("node = 7\n", "node", "letters, digits"),
        ('cluster = ""\n', "cluster", "letters, digits"),
        ('state_dir = "here"\n', "state_dir", "an absolute path"),
        ("[broker]\nport = 70000\n", "broker.port", "(a TCP port) from 1 to 65535"),
        ('[broker]\nplaintext = "perhaps"\n', "broker.plaintext", "true or false"),
        ('broker = "mqtt.lan"\n', "broker", "a table"),
        ("[broker]\ntls = true\n", "broker.tls", "a table"),
        ("[broker]\npasswort = 1\n", "broker.passwort", "one of node, cluster"),
        ("[buffer]\nmax_bytes = 10\n", "buffer.max_bytes", "bytes from 4096"),
        ("[probe]\nmax_bandwidth_duration_ms = 60000\n", "probe.max_b", "to 30000"),
        ("intervall_s = 10\n", "intervall_s", "one of node, cluster"),
        ("node = \n", "expected TOML", ""),
    ],
)
def test_a_wrong_setting_names_the_file_the_field_and_what_was_expected(
    tmp_path: Path, text: str, field: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(tmp_path, text)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/agent.toml: {field}")
    assert expected in message
    assert "\n" not in message


def test_a_wrong_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"LEADLINE_BROKER_PORT.*expected a whole number"):
        load_text(tmp_path, LOCAL, {"LEADLINE_BROKER_PORT": "mqtt"})


def test_tls_needs_all_three_files_and_they_must_be_there(tmp_path: Path) -> None:
    host = LOCAL + '[broker]\nhost = "mqtt.lan"\n'
    incomplete = "\n".join(tls_files(tmp_path).splitlines()[:-1])
    with pytest.raises(ConfigError, match=r"broker\.tls\.key_file: expected a file"):
        load_text(tmp_path, host + incomplete)
    complete = tls_files(tmp_path)
    (tmp_path / "cert.pem").unlink()
    with pytest.raises(ConfigError, match=r"broker\.tls\.cert_file: expected a readable file"):
        load_text(tmp_path, host + complete)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("interval_s = " + "9" * 5000, "lines of at most 1000 characters"),
        ("interval_s = " + "9" * 900, "found a number of 2990 bits"),
        ("interval_s = 0x" + "f" * 900, "found a number of 3600 bits"),
        ("interval_s = [\n" + "[\n" * 5000, "expected TOML"),
        ("interval_s = " + "[" * 400 + "]" * 400, "found a list"),
        ("# \n" * 40_000, "at most 65536 bytes"),
        ("a." * 400 + "a = 1", "a: expected one of"),
        ('"a\\nERROR forged" = 1', r"a\nERROR forged: expected one of"),
        ('state_dir = "/tmp/\\u0000x"', "an absolute path"),
        ("interval_s = 1979-05-27", "a whole number"),
        ("interval_s = nan", "a whole number"),
        ("[interval_s]\nx = 1", "found a table"),
    ],
)
def test_invalid_toml_is_a_one_line_error(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(tmp_path, text)
    assert reason in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_variable_of_5000_digits_is_a_wrong_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"LEADLINE_INTERVAL_S\): interval_s: expected a whole"):
        load_text(tmp_path, LOCAL, {"LEADLINE_INTERVAL_S": "9" * 5000})


def test_an_endless_or_blocking_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (Path("/dev/zero"), tmp_path / "fifo", tmp_path):
        with pytest.raises(ConfigError, match="expected a regular file"):
            load(path, {})


@pytest.mark.parametrize(
    ("host", "node"),
    [
        ("pi-1", "pi-1"),
        ("Pi-1", "pi-1"),
        ("RaspberryPi.LAN", "raspberrypi.lan"),
        (" pi ", "pi"),
        ("x" * 63, "x" * 63),
    ],
)
def test_the_node_is_named_as_kubernetes_names_it_by_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, node: str
) -> None:
    monkeypatch.setattr("leadline_agent.config.socket.gethostname", lambda: host)
    assert load_text(tmp_path, "").node == node


@pytest.mark.parametrize(
    "host", ["", "raspberry_pi", "-pi", "pi-", "pi.", "pi..lan", "pi.-a", "büro", "x" * 64, "a\nb"]
)
def test_a_host_name_that_no_node_can_have_is_one_line_that_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr("leadline_agent.config.socket.gethostname", lambda: host)
    with pytest.raises(ConfigError, match="node: expected the name of this board's node") as error:
        load_text(tmp_path, "")
    assert len(str(error.value).splitlines()) == 1
    assert load_text(tmp_path, LOCAL).node == "pi-1"


def test_a_byte_order_mark_is_no_part_of_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_bytes(b"\xef\xbb\xbf" + LOCAL.replace("\n", "\r\n").encode())
    assert load(path, {}).node == "pi-1"


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_file_of_another_encoding_is_told_as_such(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "agent.toml"
    path.write_bytes(f"{LOCAL}# für zu Hause\n".encode(encoding))
    with pytest.raises(ConfigError, match=r"agent\.toml: expected UTF-8 text, byte \d+ is not$"):
        load(path, {})
