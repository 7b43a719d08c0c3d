"""Operators of specs in the place of regions of a model that compute the same."""
