"""What every generated operator shares: the same in every project, of torch, triton and the standard library alone."""
