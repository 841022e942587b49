"""An agent that the broker refuses logs why in one line and goes on; `forget`.

The broker's ACL is the one that the role installs, so these tests hold it too.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from leadline_wire.topics import Kind

from tests.support.agents import agent_config, listening, running_agent
from tests.support.broker_role import acl
from tests.support.certificates import Authority, Certificate
from tests.support.mosquitto import Broker, mosquitto
from tests.support.ports import free_port, wait_until

pytestmark = pytest.mark.broker


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@contextmanager
def guarded(authority: Authority, folder: Path) -> Iterator[Broker]:
    with mosquitto([f"acl_file {acl(folder)}"], authority.server("localhost")) as broker:
        yield broker


def forget(config: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "leadline_agent", "forget", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_forget_clears_this_nodes_birth_and_status_and_no_others(
    authority: Authority, tmp_path: Path
) -> None:
    controller = authority.client("leadline-controller")
    with guarded(authority, tmp_path) as broker:
        for node in ("pi-1", "pi-2"):
            tls = authority.client(node)
            config = agent_config(tmp_path / node, broker.port, node=node, tls=tls)
            with listening(broker.port, tls=controller) as live, running_agent(config) as agent:
                live.wait_for(Kind.REPORT)
                assert agent.end() == 0
        done = forget(tmp_path / "pi-1" / "agent.toml")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        with listening(broker.port, tls=controller) as late:
            late.wait_for(Kind.BIRTH)
            late.wait_for(Kind.STATUS)
            # What is retained comes in one go, in the order of the topics: pi-1's before pi-2's.
            assert {(heard.topic.node, heard.topic.kind) for heard in late.heard} == {
                ("pi-2", Kind.BIRTH),
                ("pi-2", Kind.STATUS),
            }


def test_forget_leaves_the_state_folder_alone(authority: Authority, tmp_path: Path) -> None:
    with guarded(authority, tmp_path) as broker:
        config = agent_config(tmp_path, broker.port, tls=authority.client("pi-1"))
        assert forget(config).returncode == 0
    assert not (tmp_path / "state").exists()


def test_forget_without_a_broker_is_1_and_one_line(tmp_path: Path) -> None:
    done = forget(agent_config(tmp_path, free_port()))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "Connection refused" in done.stderr


def test_forget_with_anothers_certificate_is_1_and_names_both(
    authority: Authority, tmp_path: Path
) -> None:
    with guarded(authority, tmp_path) as broker:
        done = forget(agent_config(tmp_path, broker.port, tls=authority.client("pi-2")))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "certificate is pi-2's, but its settings say node = pi-1" in done.stderr


def log_of_a_refused_agent(tls: Certificate, broker: Broker, folder: Path, sign: str) -> str:
    with running_agent(agent_config(folder, broker.port, tls=tls)) as agent:
        wait_until(lambda: agent.log.count(sign) >= 2, f"'{sign}' is logged twice")
        assert agent.process.poll() is None
        return agent.log


def test_anothers_certificate_is_named_with_the_nodes_own_name(
    authority: Authority, tmp_path: Path
) -> None:
    with guarded(authority, tmp_path) as broker:
        log = log_of_a_refused_agent(authority.client("pi-2"), broker, tmp_path, "Not authorized")
    assert "this node's certificate is pi-2's, but its settings say node = pi-1" in log


def test_an_unknown_authority_is_named(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other", "Other CA").client("pi-1")
    tls = replace(other, ca_file=authority.ca_file)
    with guarded(authority, tmp_path) as broker:
        log = log_of_a_refused_agent(tls, broker, tmp_path, "trying again")
    assert "does not know the authority that signed this node's certificate" in log


def test_an_expired_certificate_is_named_with_its_day(authority: Authority, tmp_path: Path) -> None:
    tls = authority.client("pi-1", days="-1")
    with guarded(authority, tmp_path) as broker:
        log = log_of_a_refused_agent(tls, broker, tmp_path, "trying again")
    assert "this node's certificate has expired" in log
    assert "this node's certificate expired on" in log
