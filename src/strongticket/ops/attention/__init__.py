"""Attention of one token to itself and those before it, whose keys and values are kept.

`reference.py` defines it. `cuda.py` does it in one kernel, which reads the position from the GPU's memory, so that a
CUDA graph can be replayed at every position.
"""
