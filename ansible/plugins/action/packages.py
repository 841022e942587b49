"""The control machine's half of M(leadline.edge.packages): sends the .deb files that lack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.leadline.edge.plugins.plugin_utils.debs import DebsError, needed

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible has no types
    """Asks the module first; only a board that lacks something gets files."""

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        """Run the task."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        folder = arguments.pop("debs_dir", None)
        try:
            if not folder or arguments.get("state") == "absent":
                return {**result, **self._module(arguments, task_vars)}
            found = self._module({**arguments, "look": True}, task_vars)
            if found.get("missing") and not self._task.check_mode:
                debs = needed(Path(folder) / found["kind"], found["missing"])
                found = self._module({**arguments, "archive": self._send(debs)}, task_vars)
        except DebsError as error:
            return {**result, "failed": True, "msg": str(error)}
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        return {**result, **found}

    def _send(self, debs: list[Path]) -> str:
        folder = str(self._make_tmp_path())
        there = [str(self._connection._shell.join_path(folder, deb.name)) for deb in debs]
        for deb, path in zip(debs, there, strict=True):
            self._transfer_file(str(deb), path)
        self._fixup_perms2((folder, *there))
        return folder

    def _module(self, arguments: dict[str, Any], task_vars: Any) -> Any:
        name = "leadline.edge.packages"
        return self._execute_module(name, module_args=arguments, task_vars=task_vars)
