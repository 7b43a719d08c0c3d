"""Reductions of rows, broadcast back or not."""
