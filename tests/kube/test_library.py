"""The client library is loaded without its generated models, and other users still get them."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest

pytestmark = pytest.mark.slow

MAX_MODULES = 20  # of about 860


def run(program: str) -> list[str]:
    """The words that the program prints, in a new interpreter."""
    command = [sys.executable, "-c", dedent(program)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def test_the_controller_loads_few_modules_of_the_client_library() -> None:
    loaded = run(
        """
        import sys
        from leadline_controller.kube import cluster
        print(*(name for name in sys.modules if name.startswith("kubernetes_asyncio")))
        """
    )

    assert "kubernetes_asyncio.client.api_client" in loaded
    assert len(loaded) <= MAX_MODULES, (
        f"{len(loaded)} modules of kubernetes_asyncio are loaded. Either its layout changed, so "
        "that leadline_controller/kube/library.py fell back to the ordinary import, or other code "
        f"of the controller imports kubernetes_asyncio itself: {loaded[:MAX_MODULES]}"
    )


def test_other_users_in_the_process_get_the_whole_library() -> None:
    printed = run(
        """
        from types import SimpleNamespace
        from leadline_controller.kube import library
        import kubernetes_asyncio
        from kubernetes_asyncio import watch
        from kubernetes_asyncio.client import *
        from kubernetes_asyncio.client import ApiClient, CoreV1Api, V1Pod

        assert kubernetes_asyncio.client.Configuration is library.Configuration
        assert kubernetes_asyncio.client.models.V1Pod is V1Pod
        assert kubernetes_asyncio.__version__ and watch.Watch and V1Node
        assert not hasattr(kubernetes_asyncio, "no_such_name")
        client = ApiClient.__new__(ApiClient)
        client.configuration = library.Configuration()
        answer = SimpleNamespace(data='{"kind": "Pod"}')
        print(type(client.deserialize(answer, "V1Pod")) is V1Pod)
        """
    )

    assert printed == ["True"]


def test_a_library_that_is_already_loaded_is_used_unchanged() -> None:
    printed = run(
        """
        import kubernetes_asyncio as loaded
        from leadline_controller.kube import library
        import kubernetes_asyncio
        print(loaded is kubernetes_asyncio, library.Configuration is loaded.client.Configuration)
        """
    )

    assert printed == ["True", "True"]


def test_the_library_is_imported_as_usual_if_a_module_cannot_be_loaded_alone() -> None:
    printed = run(
        """
        import sys

        class FailsOnce:
            def find_spec(self, name, path=None, target=None):
                if name == "kubernetes_asyncio.client.configuration":
                    sys.meta_path.remove(self)
                    raise ImportError(name)

        sys.meta_path.insert(0, FailsOnce())
        from leadline_controller.kube import library
        loaded = [name for name in sys.modules if name.startswith("kubernetes_asyncio")]
        import kubernetes_asyncio
        print(len(loaded) > 100, library.Configuration is kubernetes_asyncio.client.Configuration)
        """
    )

    assert printed == ["True", "True"]
