"""Find tickets in random networks by learning a score for each weight (edge-popup)."""
