"""Replaces regions of a model by operators of specs that compute the same."""
