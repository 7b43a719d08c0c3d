"""Sums over rows beside what is mapped."""
