"""Rows multiplied in place."""
