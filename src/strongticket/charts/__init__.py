"""Figures as values, and what draws them: a picture, a terminal."""
