"""Operators that no single family computes: steps of several, with intermediates between them."""
