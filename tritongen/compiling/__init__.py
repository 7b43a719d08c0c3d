"""Compiling emitted kernels for GPUs that are not at hand, and the lock of what came out."""
