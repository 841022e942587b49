"""The listener and the ACL that the role `broker` installs, for a mosquitto in a test."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.certificates import Authority
from tests.support.mosquitto import Broker, mosquitto

TEMPLATES = Path(__file__).parents[2] / "ansible/roles/broker/templates"
CONTROLLER = "leadline-controller"
_IF = re.compile(r"{% if (\w+) %}\n(.*?){% endif %}\n", re.DOTALL)
_FOR = re.compile(r"{% for (\w+) in (\w+) %}\n(.*?){% endfor %}\n", re.DOTALL)
_VARIABLE = re.compile(r"{{ (\w+) }}")


def controller_of(host: str) -> str:
    """The name in the certificate of a host's controller, as the role `pki` signs it."""
    return f"{CONTROLLER}:{host}"


def acl(
    folder: Path,
    cluster: str = "default",
    locked_out: Sequence[str] = (),
    controllers: Sequence[str] = (),
    home_assistants: Sequence[str] | None = None,
) -> Path:
    """Write the role's ACL below `folder` and return the file. controllers: their hosts.
    home_assistants: who may read for Home Assistant; None: controllers may not publish for it."""
    text = _rendered(
        "acl.j2",
        {
            "broker_cluster": cluster,
            "broker_locked_out": locked_out,
            "broker_controllers": [CONTROLLER, *map(controller_of, controllers)],
            "broker_home_assistant": home_assistants is not None,
            "broker_home_assistants": home_assistants or (),
            "broker_discovery_prefix": "homeassistant",
            "broker_discovery_id": f"leadline_{cluster.replace('.', '_')}",
        },
    )
    path = folder / "acl"
    path.write_text(text)
    path.chmod(0o600)
    return path


@contextmanager
def role_broker(
    folder: Path,
    authority: Authority,
    cluster: str = "default",
    locked_out: Sequence[str] = (),
    controllers: Sequence[str] = (),
    home_assistants: Sequence[str] | None = None,
) -> Iterator[Broker]:
    """Run mosquitto with the role's own listener and ACL, on a free port of localhost."""
    rules = acl(folder, cluster, locked_out, controllers, home_assistants)
    certificate = authority.server("localhost", "127.0.0.1")
    for name, file in (
        ("ca", certificate.ca_file),
        ("cert", certificate.cert_file),
        ("key", certificate.key_file),
    ):
        (folder / f"{name}.pem").write_bytes(file.read_bytes())

    def lines(port: int) -> list[str]:
        text = _rendered(
            "leadline.conf.j2",
            {
                "broker_is_ours": True,
                "broker_port": str(port),
                "broker_max_queued_messages": "10000",
                "broker_max_queued_bytes": "16777216",
                "broker_max_packet_bytes": "262144",
            },
        ).replace("/etc/mosquitto/leadline", str(folder))
        # The role's mosquitto keeps what is retained in a folder that a test has not.
        text = text.replace("persistence true\n", "persistence false\n")
        # Started by root it would become a user who cannot read the test's files.
        return [*(["user root"] if os.geteuid() == 0 else []), "log_dest stderr", text]

    assert rules == folder / "acl"
    with mosquitto(whole=lines, host="localhost") as broker:
        yield broker


def _rendered(template: str, values: Mapping[str, object]) -> str:
    """The templates are variables, lists and flat conditions, so the tests need no Jinja."""
    text = (TEMPLATES / template).read_text()
    text = _IF.sub(lambda block: block[2] if values[block[1]] else "", text)
    text = _FOR.sub(
        lambda block: "".join(
            block[3].replace("{{ " + block[1] + " }}", str(each)) for each in _list(values, block)
        ),
        text,
    )
    text = _VARIABLE.sub(lambda name: str(values[name[1]]), text)
    assert "{" not in text, "the template has grown: render it here"
    return text


def _list(values: Mapping[str, object], block: re.Match[str]) -> Sequence[str]:
    found = values[block[2]]
    assert isinstance(found, Sequence)
    return found
