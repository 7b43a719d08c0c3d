"""Math in, reviewed Triton kernels out: TOML specs become standalone Triton modules."""

__version__ = "0.1.0"
