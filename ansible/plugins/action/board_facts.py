"""The control machine's half of M(leadline.edge.board_facts): how far apart the two clocks are."""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible has no types
    """Compares at the moment of the call: a task for a dozen boards takes a while."""

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        """Run the task."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        before_s = time.time()
        found = self._execute_module("leadline.edge.board_facts", task_vars=task_vars)
        after_s = time.time()
        if "clock_s" in found:
            # Nobody knows when between the two the board read its clock: in its favour.
            board_s = found.pop("clock_s")
            ahead_s = board_s - min(max(board_s, before_s), after_s)
            found["ansible_facts"]["leadline_board"]["clock_ahead_s"] = round(ahead_s, 1)
        return {**result, **found}
