"""`make vendor`: files of npm packages, committed so that nobody who installs Leadline needs npm.

A folder's `vendor.json` names package, version, the registry's sha512 of the package, its licence,
and for each file where it goes and its sha256. Nothing is written if the package is another.
"""

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
FOLDERS = (
    REPOSITORY / "controller" / "leadline_controller" / "map" / "page" / "vendor",
    REPOSITORY / "tests" / "web" / "vendor",
)


def differences(folder: Path) -> list[str]:
    """What of a folder is not as its `vendor.json` says; empty if all is."""
    listed = {
        file["to"]: file["sha256"]
        for package in json.loads((folder / "vendor.json").read_text()).values()
        for file in package["files"].values()
    }
    found = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.iterdir()
        if file.name != "vendor.json"
    }
    return sorted(
        f"{name}: {found.get(name, 'missing')}, and vendor.json has {listed.get(name, 'nothing')}"
        for name in listed.keys() | found.keys()
        if listed.get(name) != found.get(name)
    )


def fetch(folder: Path) -> None:
    """Write the folder's files, and their hashes into its `vendor.json`."""
    listing = folder / "vendor.json"
    packages = json.loads(listing.read_text())
    for name, package in packages.items():
        with tempfile.TemporaryDirectory() as temporary:
            packed = subprocess.run(
                ["npm", "pack", "--silent", f"{name}@{package['version']}"],
                cwd=temporary,
                check=True,
                capture_output=True,
                text=True,
            )
            archive = Path(temporary) / packed.stdout.split()[-1]
            digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
            if package["integrity"] != f"sha512-{digest}":
                sys.exit(f"{name}: sha512-{digest} came, and {listing} has another")
            with tarfile.open(archive) as tar:
                for path, file in package["files"].items():
                    member = tar.extractfile(f"package/{path}")
                    assert member is not None, path
                    content = member.read()
                    (folder / file["to"]).write_bytes(content)
                    file["sha256"] = hashlib.sha256(content).hexdigest()
    listing.write_text(json.dumps(packages, indent=2) + "\n")


if __name__ == "__main__":
    for each in FOLDERS:
        fetch(each)
