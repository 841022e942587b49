"""Leadline's agent: measures one board and reports it over MQTT."""

__version__ = "0.2.0"
