"""Math in, reviewed Triton kernels out: TOML specs become standalone Triton modules."""

__version__ = "0.2.0"
