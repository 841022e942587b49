"""Receives MQTT messages and keeps the state of boards and links, each value with its age.

What to measure next belongs in probing/.
"""
