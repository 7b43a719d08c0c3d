"""Cuts an operator into steps: chooses subgraphs that become kernels, whatever families take them."""
