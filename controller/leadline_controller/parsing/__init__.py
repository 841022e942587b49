"""Parses untrusted data: JSON, YAML, TOML, their fields, IP addresses. Errors name the place.

What the data means belongs to the room that reads it.
"""
