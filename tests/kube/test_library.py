"""The client library is loaded without its generated models, and without harm to other users."""

from __future__ import annotations

import subprocess
import sys

MOST_MODULES = 20  # of about 860
IMPORT_OURS = "from leadline_controller.kube import cluster, library\n"
COUNT = (
    "import sys\nloaded = [name for name in sys.modules if name.startswith('kubernetes_asyncio')]\n"
)


def run(program: str) -> str:
    """What the program prints in an interpreter of its own."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_controller_loads_few_modules_of_the_client_library() -> None:
    loaded = run(IMPORT_OURS + COUNT + "print(*loaded)").split()

    assert "kubernetes_asyncio.client.api_client" in loaded
    assert len(loaded) <= MOST_MODULES, (
        f"{len(loaded)} modules of kubernetes_asyncio are loaded. Its layout must have changed, "
        "so that leadline_controller/kube/library.py fell back to the ordinary import, or other "
        f"code of the controller imports kubernetes_asyncio itself: {loaded[:MOST_MODULES]}"
    )


def test_other_users_in_the_process_get_the_whole_library() -> None:
    printed = run(
        IMPORT_OURS + "from types import SimpleNamespace\n"
        "import kubernetes_asyncio\n"
        "from kubernetes_asyncio import watch\n"
        "from kubernetes_asyncio.client import ApiClient, CoreV1Api, V1Pod\n"
        "assert ApiClient is library.ApiClient\n"
        "assert kubernetes_asyncio.client.Configuration is library.Configuration\n"
        "assert kubernetes_asyncio.client.models.V1Pod is V1Pod\n"
        "assert kubernetes_asyncio.__version__ and watch.Watch and CoreV1Api\n"
        "client = ApiClient.__new__(ApiClient)\n"
        "client.configuration = library.Configuration()\n"
        'answer = SimpleNamespace(data=\'{"kind": "Pod"}\')\n'
        "print(type(client.deserialize(answer, 'V1Pod')) is V1Pod)\n"
    )

    assert printed == "True\n"


def test_a_library_that_is_loaded_already_is_used_as_it_is() -> None:
    printed = run(
        "import kubernetes_asyncio as theirs\n" + IMPORT_OURS + "import kubernetes_asyncio\n"
        "print(theirs is kubernetes_asyncio, library.ApiClient is theirs.client.ApiClient)\n"
    )

    assert printed == "True True\n"


def test_the_library_is_imported_as_usual_if_a_module_cannot_be_loaded_alone() -> None:
    printed = run(
        "import sys\n"
        "class FailsOnce:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'kubernetes_asyncio.client.configuration':\n"
        "            sys.meta_path.remove(self)\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, FailsOnce())\n"
        + IMPORT_OURS
        + COUNT
        + "import kubernetes_asyncio\n"
        "print(len(loaded) > 100, library.ApiClient is kubernetes_asyncio.client.ApiClient)\n"
    )

    assert printed == "True True\n"
