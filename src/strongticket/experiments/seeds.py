"""Seeds that never meet: one for each use, made from the experiment's own seed."""

import hashlib

# Readers of JSON keep whole numbers exact up to here.
SEED_BITS = 53


def derive_seed(seed: int, *purpose: str | int) -> int:
    """Hash a seed and what it is for into a new seed.

    Example:
        >>> derive_seed(0, "source", 8, 1) == derive_seed(0, "source", 81)
        False
    """
    text = ":".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> (64 - SEED_BITS)
