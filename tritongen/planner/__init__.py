"""Where an operator is cut into steps: which of its subgraphs are kernels, whatever families take them."""
