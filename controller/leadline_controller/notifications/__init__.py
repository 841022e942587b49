"""Messages to people when a problem of `leadline doctor` begins and when it ends.

What a problem is belongs in inspect/; systemd's notifications are in notify.py.
"""
