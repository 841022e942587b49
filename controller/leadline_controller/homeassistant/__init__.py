"""Boards in Home Assistant: the messages of its MQTT discovery, and when each is published.

The MQTT session is that of telemetry/.
"""
