"""MQTT messages -> the state of boards and links, each value with its age.

What is to be measured belongs in probing/.
"""
