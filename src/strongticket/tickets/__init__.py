"""Tickets: their content, their file format, and the networks they build."""
