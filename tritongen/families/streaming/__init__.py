"""Sums along an axis of what matmuls give, block by block: attention and its like."""
