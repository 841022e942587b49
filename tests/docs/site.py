"""Makes a site of the docs, in build/site: `make docs`. It fails where a link leads nowhere, where
mkdocs.yml leaves out a page of docs/, and where a page would load something from another host.

Pages link to files outside of docs/. So the site is made of build/pages, where each page, and each
file that one links to, has the path that it has in the repository.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[2]
BUILD = REPOSITORY / "build"
_LINK = re.compile(r'(?:\]\(|(?:src|srcset|href)=")([^)"#\s]+)')
_REMOTE = re.compile(r'<(?:script|link|img|iframe|source)\b[^>]*?=["\']?(?:https?:)?//[^>]*')


def main() -> int:
    """Make the site; 1 when something is wrong with it, which is then on standard error."""
    for name in ("pages", "site"):
        if (BUILD / name).exists():
            shutil.rmtree(BUILD / name)
    problems = list(stage(REPOSITORY, BUILD / "pages")) or list(_build())
    print(*problems, sep="\n", file=sys.stderr, end="\n" if problems else "")
    return 1 if problems else 0


def stage(repository: Path, folder: Path) -> Iterator[str]:
    """Copy all pages and what they link to into the folder. Yields what is wrong, a line each."""
    config: Any = yaml.safe_load((repository / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = [page for part in config["nav"] for entry in part.values() for page in _pages(entry)]
    for file in sorted(repository.glob("docs/**/*.md")):
        if (name := str(file.relative_to(repository))) not in pages:
            yield f"mkdocs.yml: nav has no {name}"
    files = {repository / each for each in config.get("extra_css", ())}
    for page in pages:  # it grows meanwhile
        source = repository / page
        files.add(source)
        for link in _LINK.findall(source.read_text(encoding="utf-8")):
            if re.match("[a-z]+:", link):
                continue
            target = (source.parent / link).resolve()
            if not target.is_file():
                yield f"{page}: there is no {link}"
                continue
            files.add(target)
            if (
                target.suffix == ".md"
                and (name := str(target.relative_to(repository))) not in pages
            ):
                pages.append(name)
    for file in files:
        to = folder / file.relative_to(repository)
        to.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            to.write_text(_for_zensical(file.read_text(encoding="utf-8")), encoding="utf-8")
        else:
            shutil.copyfile(file, to)


def _for_zensical(text: str) -> str:
    """GitHub wants a | escaped in the code of a table, and Python's Markdown shows the escape."""
    code = re.compile(r"`[^`]+`")
    return "".join(
        code.sub(lambda found: found[0].replace(r"\|", "|"), line) if line[0] == "|" else line
        for line in text.splitlines(keepends=True)
    )


def remote(page: str) -> list[str]:
    """What the HTML would load from another host."""
    return _REMOTE.findall(page)


def _pages(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for each in entry:
            yield from each.values()


def _build() -> Iterator[str]:
    zensical = str(Path(sys.executable).with_name("zensical"))
    argv = [zensical, "build", "--clean", "--strict"]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True)
    if done.returncode:
        yield done.stdout.partition("Traceback")[0] or done.stderr
    for page in sorted((BUILD / "site").rglob("*.html")):
        yield from (f"{page}: {each}" for each in remote(page.read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main())
