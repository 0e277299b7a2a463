"""Data sets, made or read."""
