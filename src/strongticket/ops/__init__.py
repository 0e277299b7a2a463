"""The hot operations: each a reference that says what it means, and kernels that agree with it."""
