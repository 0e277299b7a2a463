"""Tickets: what they hold, how they are stored, and the networks they build."""
