"""The `leadline` command: its commands, and how they read, print and fail. No decisions here."""
