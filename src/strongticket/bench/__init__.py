"""Benchmarks: correct first, then fast; every rate beside a peer measured in the same run."""
