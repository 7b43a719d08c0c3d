"""The formula, checked exactly: emitted kernels and the spec's math, both over a field instead of over floats."""
