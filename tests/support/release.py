"""The release that this checkout is."""

import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
VERSION: str = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
