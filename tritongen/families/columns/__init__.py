"""Sums over rows in addition to mapped results."""
