"""The only room that joins rooms: settings in, a running controller out.

The logic of a room, and rules of when something happens, belong into that room or into loops.py.
"""

from leadline_controller.wiring.controller import Controller, running
from leadline_controller.wiring.profiles import extender_profile, scheduling_profile, strategy

__all__ = ["Controller", "extender_profile", "running", "scheduling_profile", "strategy"]
