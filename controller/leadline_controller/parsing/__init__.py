"""Reads untrusted data: fields of JSON-like objects, TOML, YAML, addresses. Errors name the place.

What the data means belongs to the room that asked for it.
"""
