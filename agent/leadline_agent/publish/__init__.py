"""Publishing over MQTT: session, buffer, encoding.

What is measured belongs in collectors/ and probes/.
"""

import sys
from importlib.util import find_spec
from types import ModuleType

# paho needs urllib.request only for proxies, and these only with PySocks. It would keep http, email
# and tempfile in memory: 1.3 MB of the agent's 32.
_UNUSED = "urllib.request"
if _UNUSED not in sys.modules and find_spec("socks") is None:
    sys.modules[_UNUSED] = ModuleType(_UNUSED)
    import paho.mqtt.client  # noqa: F401  # for its effect: it finds the empty module

    del sys.modules[_UNUSED]
