"""Computations that several strategies share. Strategies import from here, never each other."""
