"""Emitted tests and benchmarks."""
