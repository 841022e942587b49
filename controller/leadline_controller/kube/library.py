"""The parts of kubernetes_asyncio that the controller uses, loaded without its generated models.

`import kubernetes_asyncio` runs about 850 modules, most of them models of API objects, which take
60 MB; ours are plain dictionaries. So the packages that import them are entered unrun: their
modules can be imported, and their `__init__` runs when somebody asks them for anything else.
Where the library is laid out otherwise, it is imported as usual.
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


def _enter_unrun(name: str) -> ModuleType:
    """Put a package into sys.modules; its `__init__` runs at the first attribute it lacks."""
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        raise ImportError(f"no module named {name}")
    package, loader = module_from_spec(spec), spec.loader

    def run_and_get(attribute: str) -> Any:
        with _LOCK:
            if package.__dict__.pop("__getattr__", None):
                loader.exec_module(package)
        return getattr(package, attribute)

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
        _enter_unrun(_LIBRARY)
        client = _enter_unrun(_CLIENT)
        _enter_unrun(f"{_CLIENT}.models")
        import_module(f"{_CLIENT}.rest")  # api_client asks the package for it
        client.__dict__["Configuration"] = import_module(f"{_CLIENT}.configuration").Configuration
        client.__dict__["ApiClient"] = import_module(f"{_CLIENT}.api_client").ApiClient
    except (ImportError, AttributeError):
        for name in [name for name in sys.modules if name.partition(".")[0] == _LIBRARY]:
            del sys.modules[name]


_load()

# Only now, as these would import it all.
from kubernetes_asyncio.client import ApiClient, Configuration  # noqa: E402
from kubernetes_asyncio.config import (  # noqa: E402
    ConfigException,
    load_incluster_config,
    load_kube_config,
)

__all__ = [
    "ApiClient",
    "ConfigException",
    "Configuration",
    "load_incluster_config",
    "load_kube_config",
]
