"""Matmuls with prologue and epilogue."""
