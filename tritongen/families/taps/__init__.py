"""Sums with a result for each tap of a window, as the gradient of a convolution's weights is."""
