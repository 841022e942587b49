"""What each of the agent's collectors reports: one file each, decoding and columns of the state.

How long a value is valid and who may report it is decided in telemetry/ and probing/.
"""

import importlib
import pkgutil

from leadline_controller.telemetry.collectors.decoder import (
    BoardReading,
    columns,
    decode,
    printable,
)

__all__ = ["BoardReading", "columns", "decode", "import_decoders", "printable"]


def import_decoders() -> None:
    """Import every module of this package, so that each decoder registers itself."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)


import_decoders()
