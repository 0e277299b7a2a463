"""Figures as plain data, drawn as pictures or in a terminal."""
