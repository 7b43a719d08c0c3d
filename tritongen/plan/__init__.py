"""Gradients -> the programs that compute them."""
