"""Gradients -> plans: the steps that compute them."""
