"""Exact checks of formulas: emitted kernels and the spec's math, both over a field instead of floats."""
