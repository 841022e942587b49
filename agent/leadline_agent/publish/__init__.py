"""Publishing over MQTT: session, buffer, encoding.

What is measured belongs in collectors/ and probes/.
"""
