"""What every generated operator shares. It needs torch, triton and the standard library, and is the same in every project."""
