"""Kernels as nests of typed statements, between the math of an operator and the text of a kernel."""
