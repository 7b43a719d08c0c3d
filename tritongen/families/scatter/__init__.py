"""Sums over the places that name an element: the gradient of `take`."""
