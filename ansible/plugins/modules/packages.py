"""Debian packages that a role brings: see the documentation below."""

from __future__ import annotations

import subprocess

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.leadline.edge.plugins.module_utils.packages import (
    Packages,
    PackagesError,
)

DOCUMENTATION = """
module: packages
short_description: Debian packages that a role brings and takes away again
version_added: 0.1.0
description:
  - Installs what is missing, and notes in C(/etc/leadline/installed-packages) what was not there
    before, dependencies and users included. V(absent) purges exactly that.
  - Needs nothing on the board but dpkg and apt-get, in particular no python3-apt.
attributes:
  check_mode: {support: full, description: Says what it would install or purge.}
options:
  owner:
    description: The role; what one role brought another does not take away.
    type: str
    required: true
  names:
    description: The packages.
    type: list
    elements: str
    default: []
  debs_dir:
    description: >-
      A folder on the control machine with C(<codename>-<arch>/*.deb), for boards without internet.
      Only what O(names) need is sent. Without it apt's own sources are asked.
    type: path
  state:
    description: See above.
    type: str
    choices: [present, absent]
    default: present
  debs:
    description: Set by the action plugin.
    type: list
    elements: path
    default: []
author: The Leadline authors
"""

EXAMPLES = """
- name: Program for bandwidth tests
  leadline.edge.packages:
    owner: agent
    names: [iperf3]
    debs_dir: debs

- name: Take it away again
  leadline.edge.packages:
    owner: agent
    state: absent
"""

RETURN = """
missing: {description: What was not installed., type: list, returned: present}
kept: {description: What others need now and so stayed., type: list, returned: absent}
"""


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "owner": {"type": "str", "required": True},
            "names": {"type": "list", "elements": "str", "default": []},
            "debs_dir": {"type": "path"},
            "state": {"choices": ["present", "absent"], "default": "present"},
            "debs": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    packages = Packages(module.params["owner"])
    try:
        if module.params["state"] == "present":
            _install(module, packages)
        else:
            _remove(module, packages)
    except (PackagesError, OSError, ValueError, subprocess.TimeoutExpired) as error:
        module.fail_json(msg=str(error))


def _install(module: AnsibleModule, packages: Packages) -> None:
    missing = packages.missing(module.params["names"])
    if missing and module.params["debs_dir"] and not module.params["debs"]:
        module.exit_json(changed=module.check_mode, missing=missing, needs_debs=True)
    if missing and not module.check_mode:
        packages.install(missing, module.params["debs"])
    module.exit_json(changed=bool(missing), missing=missing)


def _remove(module: AnsibleModule, packages: Packages) -> None:
    noted = packages.noted("package") + packages.noted("user")
    kept = [] if module.check_mode or not noted else packages.remove()
    module.exit_json(changed=bool(noted), kept=kept)


if __name__ == "__main__":
    main()
