"""Debian packages that can be taken back: what a role installs is noted before it is there.

On remove a board must be as it was, and a package that somebody else had installed must stay.
So the note names every package that came with an installation, dependencies too, and for whom.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: packages
short_description: Installs Debian packages, notes which, and takes back those that it noted
version_added: 0.1.0
description:
  - Installs what is missing with apt, or from a folder of .deb files without any network.
  - Every package that is new on the machine is noted in /etc/leadline/installed-packages.
  - Removing purges only what was noted for the same O(owner), is noted for nobody else, and is
    needed by no other package.
options:
  names: {type: list, elements: str, required: true, description: The packages.}
  owner: {type: str, required: true, description: The role that they are for.}
  state:
    type: str
    choices: [present, absent]
    default: present
    description: Whether they are wanted.
  debs_dir:
    type: path
    description:
      - A folder on the control machine with <codename>-<arch>/*.deb, in place of apt's sources.
      - Only what is missing is sent, and what it depends on.
  archive: {type: path, description: Set by the action plugin.}
  look: {type: bool, default: false, description: Set by the action plugin.}
attributes:
  check_mode: {support: full, description: Says what would be installed or purged.}
author: The Leadline authors
"""

EXAMPLES = """
- name: Install mosquitto
  leadline.edge.packages:
    names: [mosquitto]
    owner: broker
"""

RETURN = """
packages: {type: list, returned: always, description: What was installed or purged.}
missing: {type: list, returned: always, description: Which of the names were not installed.}
installed_by_us: {type: list, returned: always, description: What is noted for the owner.}
kind: {type: str, returned: always, description: "Release and architecture: bookworm-arm64."}
"""

NOTE = Path("/etc/leadline/installed-packages")
APT = ["apt-get", "-y", "--no-install-recommends", "-o", "Dpkg::Options::=--force-confold"]
SILENT = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
Lines = list[tuple[str, str]]  # package, owner


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "names": {"type": "list", "elements": "str", "required": True},
            "owner": {"type": "str", "required": True},
            "state": {"choices": ["present", "absent"], "default": "present"},
            "debs_dir": {"type": "path"},
            "archive": {"type": "path"},
            "look": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    given = module.params
    missing = [name for name in given["names"] if not _is_installed(module, name)]
    if given["state"] == "absent":
        changed = _purge(module, [name for name in given["names"] if name not in missing])
    elif given["look"] or module.check_mode or not missing:
        changed = missing  # with an archive that is not there yet more cannot be said
    else:
        changed = _install(module, missing)
    noted = [package for package, owner in _read() if owner == given["owner"]]
    answer = {"packages": changed, "missing": missing, "installed_by_us": noted}
    module.exit_json(changed=bool(changed), kind=_kind(module), **answer)


def _install(module: AnsibleModule, missing: list[str]) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="leadline-apt-") as folder:
        sources = _sources(module, Path(folder))
        new = _simulated(module, [*sources, "install", *missing], "Inst")
        _write(_read() + [(package, module.params["owner"]) for package in new])
        _run(module, [*APT, *sources, "install", *missing])
    return new


def _purge(module: AnsibleModule, installed: list[str]) -> list[str]:
    lines, owner = _read(), module.params["owner"]
    own = {package for package, whose in lines if whose == owner}
    own -= {package for package, whose in lines if whose != owner}
    asked = [name for name in installed if name in own]
    doomed = _simulated(module, ["purge", *asked], "Purg") if asked else []
    if not set(doomed) <= own:
        others = ", ".join(sorted(set(doomed) - own))
        module.fail_json(f"{', '.join(asked)}: not removed, {others} would go too; remove it first")
    if module.check_mode:
        return doomed
    if asked:
        _run(module, [*APT, "purge", *asked])
    needed = sorted(package for package in own - set(doomed) if _is_installed(module, package))
    if needed:
        _run(module, ["apt-mark", "auto", *needed])
        orphans = _simulated(module, ["autoremove"], "Remv")
        needed = [package for package in needed if package in orphans]
    if needed:
        _run(module, [*APT, "purge", *needed])
    _write([line for line in lines if line[1] != owner])
    return doomed + needed


def _sources(module: AnsibleModule, folder: Path) -> list[str]:
    """apt's options: its own sources, or none but the archive, whose index is made here."""
    archive: str | None = module.params["archive"]
    if archive is None:
        _run(module, ["apt-get", "update"])
        return []
    index = []
    for file in sorted(Path(archive).glob("*.deb")):
        fields = _run(module, ["dpkg-deb", "--field", str(file)]).strip()
        digest = module.sha256(str(file))
        size = file.stat().st_size
        index.append(f"{fields}\nFilename: ./{file.name}\nSize: {size}\nSHA256: {digest}\n")
    Path(archive, "Packages").write_text("\n".join(index))
    (folder / "lists").mkdir()
    source = folder / "sources.list"
    source.write_text(f"deb [trusted=yes] file:{archive} ./\n")
    options = {
        "Dir::Etc::sourcelist": str(source),
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": str(folder / "lists"),
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "APT::Sandbox::User": "root",
    }
    flags = [flag for key, value in options.items() for flag in ("-o", f"{key}={value}")]
    _run(module, ["apt-get", *flags, "update"])
    return flags


def _simulated(module: AnsibleModule, arguments: list[str], verb: str) -> list[str]:
    """The packages that apt would install (Inst), remove (Remv) or purge (Purg)."""
    words = [line.split() for line in _run(module, [*APT, "-s", *arguments]).splitlines()]
    return [word[1].partition(":")[0] for word in words if len(word) > 1 and word[0] == verb]


def _is_installed(module: AnsibleModule, name: str) -> bool:
    command = ["dpkg-query", "-W", "-f", "${db:Status-Status}", name]
    code, said, _ = module.run_command(command, environ_update=SILENT)
    return bool(code == 0 and said.startswith("installed"))


def _kind(module: AnsibleModule) -> str:
    """The release and the architecture, such as bookworm-arm64."""
    lines = Path("/etc/os-release").read_text().splitlines()
    release = dict(line.split("=", 1) for line in lines if "=" in line)
    arch = _run(module, ["dpkg", "--print-architecture"]).strip()
    return f"{release.get('VERSION_CODENAME', 'unknown')}-{arch}"


def _run(module: AnsibleModule, command: list[str]) -> str:
    code, said, complaint = module.run_command(command, environ_update=SILENT)
    if code:
        last = (complaint or said).strip().splitlines()[-1:]
        module.fail_json(f"{command[0]}: {''.join(last)}", cmd=" ".join(command), stderr=complaint)
    return str(said)


def _read() -> Lines:
    if not NOTE.exists():
        return []
    words = [line.split() for line in NOTE.read_text().splitlines()]
    return [(word[0], word[1]) for word in words if len(word) == 2]


def _write(lines: Lines) -> None:
    if not lines:
        NOTE.unlink(missing_ok=True)
        return
    NOTE.parent.mkdir(mode=0o755, exist_ok=True)
    text = "".join(f"{package} {owner}\n" for package, owner in dict.fromkeys(lines))
    temporary = NOTE.with_suffix(".new")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(NOTE)


if __name__ == "__main__":
    main()
