"""Compile emitted kernels for GPUs that are not at hand, and compare them with a lock."""
