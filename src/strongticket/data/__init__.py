"""Data sets, generated or read."""
