"""Agents of the lab: their configuration files."""

import tomllib

from leadline_controller.lab.agents import AgentSettings, agent_toml
from leadline_controller.lab.lab import Lab
from leadline_controller.lab.spec import LabSpec


def test_each_host_gets_its_own_configuration() -> None:
    settings = AgentSettings(cluster='a"b', broker_host="10.77.0.254", interval_s=0.5)
    parsed = tomllib.loads(agent_toml(Lab(LabSpec("attic")), "n2", settings))
    assert parsed == {
        "node": "n2",
        "cluster": 'a"b',
        "state_dir": "/run/leadline-lab/attic/n2",
        "interval_s": 0.5,
        "broker": {"host": "10.77.0.254", "port": 1883, "plaintext": True},
        "probe": {"address": "10.77.0.2"},
    }
