"""What several strategies compute alike. Strategies import from here, never each other."""
