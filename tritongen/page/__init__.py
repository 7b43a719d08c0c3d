"""A web page that runs the generator in the browser: its build, and the functions that its worker calls."""
