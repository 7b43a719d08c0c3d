"""Has Triton interpret kernels where there is no GPU, before any test imports it: it decides once."""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
    if os.environ["TRITON_INTERPRET"] == "1":
        import fast_interpreter  # noqa: F401
