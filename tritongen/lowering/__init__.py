"""Statements and index math of kernels, from the IR."""
