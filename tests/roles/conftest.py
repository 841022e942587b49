"""Roles and playbooks without machines: Ansible runs here, and its targets are folders and servers
of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They need Ansible, which `make test-all` does not."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.rollout)
