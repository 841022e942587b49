"""Home Assistant with nothing but its MQTT integration; it runs in an environment of its own.

Usage: driver.py FOLDER ENTRY, with the integration's settings as JSON. Each line of standard input
is answered by one line of JSON: the entities that the integration made, and what it complained of.
"""

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

from homeassistant import bootstrap, loader  # type: ignore[import-not-found]
from homeassistant.config_entries import (  # type: ignore[import-not-found]
    ConfigEntries,
    ConfigEntry,
)
from homeassistant.core import HomeAssistant  # type: ignore[import-not-found]
from homeassistant.helpers import (  # type: ignore[import-not-found]
    device_registry,
    entity_registry,
)

# It needs these for its pages only, and they need more packages. So its cameras and images, which
# nobody has, cannot be set up, as is logged.
_LEFT_OUT = ("file_upload", "http")
_SETUP = "homeassistant.setup"


class Complaints(logging.Handler):
    """Keeps the warnings and errors."""

    def __init__(self) -> None:
        """Keep them from now on."""
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        if not record.name.startswith(_SETUP):
            self.lines.append(self.format(record))


async def main(folder: Path, settings: dict[str, Any]) -> None:
    """Run until the end of standard input."""
    complaints = Complaints()
    logging.getLogger().addHandler(complaints)
    (folder / "configuration.yaml").touch()
    hass = HomeAssistant(str(folder))
    hass.config.skip_pip = True
    loader.async_setup(hass)
    hass.config_entries = ConfigEntries(hass, {})
    await bootstrap.async_load_base_functionality(hass)
    for component in _LEFT_OUT:
        hass.config.components.add(component)
    entry = ConfigEntry(
        version=1, minor_version=1, domain="mqtt", title="MQTT", data=settings, source="user"
    )
    await hass.config_entries.async_add(entry)
    await hass.async_start()
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(seen(hass, complaints.lines)), flush=True)
    await hass.async_stop()


def seen(hass: Any, complaints: list[str]) -> dict[str, Any]:
    """The entities of the integration."""
    devices = device_registry.async_get(hass).devices
    entities = {}
    for entity in entity_registry.async_get(hass).entities.values():
        state, device = hass.states.get(entity.entity_id), devices[entity.device_id]
        entities[entity.entity_id] = {
            "unique_id": entity.unique_id,
            "device": {"name": device.name, "model": device.model, "version": device.sw_version},
            "state": state.state if state else None,
            "attributes": {
                name: value
                for name, value in (state.attributes if state else {}).items()
                if isinstance(value, str | int | float | bool | None)
            },
        }
    return {"entities": entities, "devices": len(devices), "complaints": complaints}


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), json.loads(sys.argv[2])))
