"""Compiles a tanh of half precision in a process that may not ask for its GPU, like those that torch.compile forks."""

from __future__ import annotations

import triton
import triton.language as tl
from compiling import TARGETS
from triton.compiler import ASTSource
from triton.runtime import driver

from generated._runtime import special


class Driver:
    """That of a forked process, in which CUDA cannot be initialised."""

    def get_current_target(self) -> object:
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")


@triton.jit
def kernel(x_ptr, y_ptr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, N)
    tl.store(y_ptr + at, special.tanh_half(tl.load(x_ptr + at)))


if __name__ == "__main__":
    driver.set_active(Driver())
    source = ASTSource(kernel, {"x_ptr": "*fp32", "y_ptr": "*fp32", "N": "constexpr"}, {"N": 128})
    for name, target in TARGETS.items():
        print(name, triton.compile(source, target=target).asm["llir"].count("tanh.approx"))
