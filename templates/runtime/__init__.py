"""What all generated operators share, identical in every project. It imports torch, triton and the standard library."""
