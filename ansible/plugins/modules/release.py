"""One part of a bundle on a board: see the documentation below, and module_utils/releases.py."""

from __future__ import annotations

import sys
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.leadline.edge.plugins.module_utils.releases import ReleaseError, Releases

DOCUMENTATION = """
module: release
short_description: Delivers one part of a bundle, switches to it, and goes back
version_added: 0.1.0
description:
  - Only the wheels that the board needs travel, in one archive, and only when the release is not
    there yet. The board needs python3 and no internet.
  - V(present) makes the release and switches to it. V(confirmed) writes down that it is healthy.
    V(reverted) goes back to what was healthy last. V(rolled_back) goes to the release before.
    V(absent) removes unit and releases. V(checked) looks on the control machine whether the
    bundle holds what this board needs, with the facts of M(leadline.edge.board_facts).
attributes:
  check_mode: {support: full, description: Says what it would do.}
  diff_mode: {support: full, description: Shows the release before and after.}
options:
  name:
    description: The part of the bundle, V(agent), V(controller) or V(flows).
    type: str
    required: true
  state:
    description: See above.
    type: str
    choices: [present, confirmed, reverted, rolled_back, absent, checked]
    default: present
  bundle:
    description: The folder that C(make bundle) made, on the control machine.
    type: path
  settings:
    description: Files without secrets that are kept with the release and go back with it.
    type: list
    elements: path
    default: []
  watched:
    description: Files whose change asks for a restart; only hashes of them are kept.
    type: list
    elements: path
    default: []
  release:
    description: Set by the action plugin.
    type: str
  archive:
    description: Set by the action plugin.
    type: path
author: The Leadline authors
"""

EXAMPLES = """
- name: Deliver the agent
  leadline.edge.release:
    name: agent
    bundle: dist/bundle
    settings: [/etc/leadline/agent.toml]
"""

RETURN = """
current: {description: The release that the unit starts., type: str, returned: always}
previous: {description: The one to go back to., type: str, returned: always}
before: {description: Both links as they were., type: dict, returned: always}
version: {description: The version of the current release., type: str, returned: always}
restart:
  description: Whether what is there is not what was healthy last.
  type: bool
  returned: always
went_back:
  description: Whether V(reverted) or V(rolled_back) had anything to do.
  type: bool
  returned: always
"""


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {
                "choices": ["present", "confirmed", "reverted", "rolled_back", "absent", "checked"],
                "default": "present",
            },
            "bundle": {"type": "path"},
            "settings": {"type": "list", "elements": "path", "default": []},
            "watched": {"type": "list", "elements": "path", "default": []},
            "release": {"type": "str"},
            "archive": {"type": "path"},
        },
        supports_check_mode=True,
    )
    name = module.params["name"]
    releases = Releases(
        Path(f"/opt/leadline/{name}"), Path(f"/etc/systemd/system/leadline-{name}.service")
    )
    try:
        _answer(module, releases)
    except (ReleaseError, OSError) as error:
        module.fail_json(msg=str(error))


def _answer(module: AnsibleModule, releases: Releases) -> None:
    settings = [Path(path) for path in module.params["settings"]]
    watched = [Path(path) for path in module.params["watched"]]
    before = _links(releases)
    extra: dict[str, bool] = {}
    match module.params["state"]:
        case "present":
            changed, extra = _present(module, releases)
        case "confirmed":
            changed = not releases.is_running([*settings, *watched])
            if changed and not module.check_mode:
                releases.confirm(settings, watched)
        case "absent":
            changed = before["current"] is not None or Path("/opt/leadline").exists()
            if not module.check_mode:
                changed = releases.remove()
        case "rolled_back" if module.check_mode:
            extra["went_back"] = changed = before["previous"] is not None
        case "rolled_back":
            extra["went_back"] = changed = releases.roll_back(settings)
        case _:
            extra["went_back"] = changed = not module.check_mode and releases.revert(settings)
    after = _links(releases)
    is_running = releases.is_running([*settings, *watched])
    restart = changed or (after["current"] is not None and not is_running)
    if module.check_mode and module.params["state"] == "present" and changed:
        after = {"current": module.params["release"], "previous": before["current"]}
    version = (after["current"] or "").rpartition("-")[0]
    diff = {"before": _shown(before), "after": _shown(after)}
    answer = {"changed": changed, "restart": restart, "before": before, "version": version}
    module.exit_json(**answer, diff=diff, **after, **extra)


def _present(module: AnsibleModule, releases: Releases) -> tuple[bool, dict[str, bool]]:
    release, archive = module.params["release"], module.params["archive"]
    is_made = releases.is_complete(release)
    changed = not (is_made and releases.is_switched(release))
    if module.check_mode:
        return changed, {}
    if not is_made:
        if archive is None:
            return False, {"needs_delivery": True}
        # Its own name, python3.11, goes with the version: the release is then made anew.
        releases.make(release, Path(archive), str(Path(sys.executable).resolve()))
    if changed:
        releases.switch(release)
    return changed, {}


def _links(releases: Releases) -> dict[str, str | None]:
    return {"current": releases.current, "previous": releases.previous}


def _shown(links: dict[str, str | None]) -> str:
    return "".join(f"{link}: {release}\n" for link, release in links.items())


if __name__ == "__main__":
    main()
