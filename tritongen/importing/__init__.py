"""PyTorch in, a spec out: `tritongen import`. All that needs torch imports it lazily."""
