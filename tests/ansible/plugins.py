"""Loads the collection's plain Python by path: it needs no Ansible, and so do its tests."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

PLUGINS = Path(__file__).parents[2] / "ansible/plugins"


def load(name: str) -> ModuleType:
    """The module at `name` below plugins/, such as "module_utils/releases"."""
    full = "leadline_edge_" + name.replace("/", "_")
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, PLUGINS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[full] = module
        spec.loader.exec_module(module)
    return sys.modules[full]
