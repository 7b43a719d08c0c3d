"""A web page that runs the generator in the browser: what builds it, and what its worker calls."""
