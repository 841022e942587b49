"""`make dist`: all that is published of a release but its images: wheels, checked as the package
index checks them, a bill of materials (CycloneDX, with licences) of each part and image, the chart,
and the plugin for krew."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from leadline_bundle import archives, debian, image
from leadline_bundle.build import PARTS, release_version
from leadline_bundle.commands import Command
from leadline_bundle.debian import Package
from leadline_bundle.tools import Cache, run, sha256
from leadline_bundle.wheels import EPOCH_S, UV, Wheels, environment

LOCK = Path(__file__).parents[3] / "requirements-release.lock"
FOLDERS = (
    "agent",
    "agent/flows",
    "controller",
    "controller/experiments",
    "controller/lab",
    "proto",
)
_LICENSE = re.compile(r"^License: *(\S.*)$", re.MULTILINE)


def build(
    source: Path, out: Path, cache: Cache, environ: Mapping[str, str], url: str = ""
) -> list[Path]:
    """Write all of it into `out`, which replaces it. url: where it will be published; only krew's
    manifest names it. Raises BundleError."""
    version = release_version(source / "pyproject.toml")
    # The bills' tool takes its time from it, too.
    environ = {**environ, "SOURCE_DATE_EPOCH": environ.get("SOURCE_DATE_EPOCH", EPOCH_S)}
    out.parent.mkdir(parents=True, exist_ok=True)
    with cache.locked(), TemporaryDirectory(prefix=".dist-", dir=out.parent) as temporary:
        new = Path(temporary) / "new"
        new.mkdir()
        wheels = Wheels(cache, environ)
        for folder in FOLDERS:
            wheels.build(new, source / folder, what=f"the wheel of {source / folder}")
        programs = environment("release", LOCK, cache, environ) / "bin"
        built = sorted(new.glob("*.whl"))
        run([programs / "twine", "check", "--strict", *built], environ, "twine check")
        bills = {}
        for part, folders in PARTS.items():
            bill = new / f"leadline-{part}-{version}.cdx.json"
            own = [f"leadline-{part}", *(["leadline-wire"] if "proto" in folders else [])]
            _write_bill(bill, source / folders[0], own, new, programs, Path(temporary), environ)
            bills[part] = json.loads(bill.read_text(encoding="utf-8"))
        for name, packages in image.PACKAGES.items():
            bill = new / f"{name}-image-{version}.cdx.json"
            inner = bills.get(name.removeprefix("leadline-"), {}).get("components", [])
            locked = [each for each in debian.read_lock() if each.name in packages]
            whole = _of_image(name, version, locked, inner, cache, environ)
            whole |= {key: bills["controller"][key] for key in ("bomFormat", "specVersion")}
            bill.write_text(json.dumps(whole, indent=2, sort_keys=True) + "\n", encoding="utf-8")
            check = "import sys; from cyclonedx.schema import SchemaVersion as S; "
            check += "from cyclonedx.validation.json import JsonStrictValidator as V; "
            check += "sys.exit(str(V(S.from_version(sys.argv[2])).validate_str("
            check += "open(sys.argv[1]).read()) or '') or 0)"
            run([programs / "python", "-c", check, bill, whole["specVersion"]], environ, bill.name)
        epoch_s = int(EPOCH_S)
        url = url.rstrip("/") or f"https://example.org/leadline/v{version}"
        texts = archives.krew(source, version, url, epoch_s)
        texts[f"leadline-{version}.tgz"] = archives.chart(source, epoch_s)
        for name, content in texts.items():
            (new / name).write_bytes(content)
        sums = "".join(f"{sha256(file)}  {file.name}\n" for file in sorted(new.iterdir()))
        (new / "SHA256SUMS").write_text(sums, encoding="utf-8")
        cache.prune()
        if out.exists():
            out.rename(Path(temporary) / "old")
        new.rename(out)
    return sorted(out.iterdir())


def _write_bill(
    bill: Path,
    folder: Path,
    own: Sequence[str],
    wheels: Path,
    programs: Path,
    temporary: Path,
    environ: Mapping[str, str],
) -> None:
    """Install a part from its lock and our wheels, and write what is installed."""
    what, venv = f"the bill of materials of {folder}", temporary / "venv"
    run([UV, "venv", "--quiet", "--clear", "--python", sys.executable, venv], environ, what)
    into = ("pip", "install", "--quiet", "--python", venv / "bin/python")
    lock = ("--require-hashes", "--requirements", folder / "requirements.lock")
    run([UV, *into, *lock], environ, what)
    run([UV, *into, "--no-deps", "--no-index", "--find-links", wheels, *own], environ, what)
    options = ("--output-reproducible", "--gather-license-texts", "--of", "JSON")
    project = ("--pyproject", folder / "pyproject.toml", "--mc-type", "application")
    command = (programs / "cyclonedx-py", "environment", *options, *project, "-o", bill)
    run([*command, venv / "bin/python"], environ, what)
    shutil.rmtree(venv)


def _of_image(
    name: str,
    version: str,
    locked: Iterable[Package],
    inner: Sequence[Mapping[str, Any]],
    cache: Cache,
    environ: Mapping[str, str],
) -> dict[str, Any]:
    """The bill of an image: Debian's packages for each architecture, and what is installed."""
    components: list[Mapping[str, Any]] = list(inner)
    for architecture in image.ARCHITECTURES:
        packages = [each for each in locked if each.architecture == architecture]
        files = debian.unpacked(debian.downloaded(packages, cache, environ, None))
        for each in packages:
            place = f"{quote(each.name)}@{quote(each.version, safe='')}"
            purl = f"pkg:deb/debian/{place}?arch={architecture}&distro={debian.CODENAME}"
            text = files.get(f"usr/share/doc/{each.name}/copyright")
            found = _LICENSE.findall(text.content.decode("utf-8", "replace") if text else "")
            # Not every copyright file can be read by machines.
            found = found or [f"see /usr/share/doc/{each.name}/copyright in the image"]
            component = {
                "type": "library",
                "bom-ref": purl,
                "name": each.name,
                "version": each.version,
                "purl": purl,
                "hashes": [{"alg": "SHA-256", "content": each.sha256}],
                "licenses": [{"license": {"name": one}} for one in sorted(set(found))],
            }
            components.append(component)
    return {
        "metadata": {"component": {"type": "container", "name": name, "version": version}},
        "components": components,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Build all of it; the exit code is 0, 1 after an error, or 130 after Ctrl-C."""

    def work(options: argparse.Namespace) -> None:
        cache = Cache(options.cache)
        for file in build(options.source, options.out, cache, os.environ, options.url):
            sys.stdout.write(f"{file}\n")

    command = Command("leadline_bundle.release", "a release", "dist/release", "image")
    command.parser.add_argument("--url", default="", help="where it will be published, for krew")
    return command.run(argv, work)


if __name__ == "__main__":
    sys.exit(main())
