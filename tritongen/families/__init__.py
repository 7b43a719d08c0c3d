"""Kernel families: each turns a program into kernels, a launch rule and what its templates see."""
