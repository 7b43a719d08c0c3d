"""What torch.compile's copies of kernels lack.

    python -m tests.compiling.copied_kernels OPERATOR ...

Its workers compile a kernel from a module of its own, into which torch copies the functions and the constants that the
kernel uses, but nothing else of their modules. Prints each kernel with the names that its copy looks up in vain. Run as
a program of its own: `TRITON_INTERPRET` must not be set when a kernel is defined.
"""

from __future__ import annotations

import builtins
import dis
import importlib
import linecache
import sys
from types import CodeType
from typing import Any

from torch._inductor.codegen.wrapper import user_defined_triton_kernel_transitive_closure_source_code as copied

# What torch imports in each of these modules.
GIVEN = {"triton", "tl", "libdevice", "tl_math", "math", *dir(builtins)}


def lacking(kernel: Any) -> set[str]:
    source = "import triton\nimport triton.language as tl\n" + copied(kernel)
    linecache.cache["copied"] = (len(source), None, source.splitlines(keepends=True), "copied")  # For @triton.jit.
    code = compile(source, "copied", "exec")
    module: dict[str, Any] = {}
    exec(code, module)
    functions = [one for one in code.co_consts if isinstance(one, CodeType)]
    looked_up = {at.argval for one in functions for at in dis.get_instructions(one) if at.opname == "LOAD_GLOBAL"}
    return looked_up - set(module) - GIVEN


if __name__ == "__main__":
    for operator in sys.argv[1:]:
        for name, kernel in vars(importlib.import_module(f"{operator}.kernels")).items():
            if name.endswith("_kernel"):
                print(f"{operator}.{name}", *sorted(lacking(kernel)))
