"""The control machine's half of M(leadline.edge.release): packs what a board lacks and sends it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from ansible_collections.leadline.edge.plugins.plugin_utils.bundle import Bundle, BundleError

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible has no types
    """Asks the module first; only a board without the release gets an archive."""

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        """Run the task."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        if arguments.get("state", "present") not in ("present", "checked"):
            return {**result, **self._module(arguments, task_vars)}
        facts = task_vars["ansible_facts"]["leadline_board"]
        folder = Path(str(arguments.get("bundle"))).expanduser()
        bundle = Bundle(folder, str(arguments["name"]), facts["python"], facts["machine"])
        try:
            return {**result, **self._deliver(bundle, arguments, task_vars)}
        except BundleError as error:
            return {**result, "failed": True, "msg": str(error)}
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)

    def _deliver(self, bundle: Bundle, arguments: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        arguments["release"] = bundle.release
        if arguments.get("state") == "checked":
            bundle.files()
            return {"changed": False, "release": bundle.release}
        found: dict[str, Any] = self._module(arguments, task_vars)
        if not found.pop("needs_delivery", False):
            return found
        arguments["archive"] = self._send(bundle)
        return {**self._module(arguments, task_vars), "before": found.get("before")}

    def _send(self, bundle: Bundle) -> str:
        folder = self._make_tmp_path()
        there = str(self._connection._shell.join_path(folder, "release.zip"))
        with tempfile.NamedTemporaryFile(suffix=".zip") as archive:
            bundle.pack(Path(archive.name))
            self._transfer_file(archive.name, there)
        self._fixup_perms2((folder, there))
        return there

    def _module(self, arguments: dict[str, Any], task_vars: Any) -> Any:
        name = "leadline.edge.release"
        return self._execute_module(name, module_args=arguments, task_vars=task_vars)
