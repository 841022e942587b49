"""MQTT -> state, and leases back to the agents."""
