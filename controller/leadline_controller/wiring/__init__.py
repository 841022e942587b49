"""The only room that joins rooms: settings in, a running controller out.

The logic of a room, and rules of when something happens, belong into that room or into loops.py.
"""

from leadline_controller.wiring.controller import Controller
from leadline_controller.wiring.rules import scheduling_rule, strategy
from leadline_controller.wiring.servers import Servers
from leadline_controller.wiring.work import running

__all__ = ["Controller", "Servers", "running", "scheduling_rule", "strategy"]
