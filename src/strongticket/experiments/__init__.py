"""The paper's figures: one file each, and what they share."""
