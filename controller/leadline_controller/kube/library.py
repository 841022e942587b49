"""The parts of kubernetes_asyncio that the controller uses, loaded without its generated models.

`import kubernetes_asyncio` loads about 850 modules and 60 MB, most of them models of API objects,
which the controller does not use. So this module registers the packages that import the models
without running them. Their modules can be imported, and a package's `__init__` runs when anybody
asks for another of its attributes. If the library's layout is not as expected, it is imported as
usual.
"""

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from threading import RLock
from types import ModuleType
from typing import Any

_LIBRARY = "kubernetes_asyncio"
_CLIENT = f"{_LIBRARY}.client"
_LOCK = RLock()


def _register_lazily(name: str) -> ModuleType:
    """Put a package into sys.modules whose `__init__` runs at the first missing attribute."""
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        raise ImportError(f"no module named {name}")
    package, loader = module_from_spec(spec), spec.loader
    started = False

    def run_and_get(attribute: str) -> Any:
        nonlocal started
        with _LOCK:  # another thread waits until `__init__` has run
            if not started:
                started = True
                loader.exec_module(package)
                del package.__dict__["__getattr__"]
        try:
            return package.__dict__[attribute]
        except KeyError:
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}") from None

    package.__dict__["__getattr__"] = run_and_get  # PEP 562
    sys.modules[name] = package
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)
    return package


def _load() -> None:
    if _LIBRARY in sys.modules:
        return
    try:
        _register_lazily(_LIBRARY)
        client = _register_lazily(_CLIENT)
        _register_lazily(f"{_CLIENT}.models")
        import_module(f"{_CLIENT}.rest")  # api_client imports it from the package
        client.__dict__["Configuration"] = import_module(f"{_CLIENT}.configuration").Configuration
        client.__dict__["ApiClient"] = import_module(f"{_CLIENT}.api_client").ApiClient
    except (ImportError, AttributeError):
        for name in [name for name in sys.modules if name.partition(".")[0] == _LIBRARY]:
            del sys.modules[name]


_load()

# Not at the top (E402), because these would load the whole library before `_load`.
from kubernetes_asyncio.client import Configuration  # noqa: E402
from kubernetes_asyncio.config import (  # noqa: E402
    ConfigException,
    load_incluster_config,
    load_kube_config,
)

__all__ = [
    "ConfigException",
    "Configuration",
    "load_incluster_config",
    "load_kube_config",
]
