"""Reductions of rows, mapped back or not."""
