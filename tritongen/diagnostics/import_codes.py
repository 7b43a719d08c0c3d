"""The codes of `tritongen import`, for `tritongen.diagnostics.codes`."""

from __future__ import annotations

from .code import row

IMPORTS = (
    row(
        "TG001",
        "an operator that the language does not have",
        """
        `tritongen import` writes each operator of a traced function in the language, and names all that have no words
        there: random numbers, complex numbers, convolutions, data-dependent shapes, tensors put side by side that are
        of different lengths, operators of somebody's own. Import the part of the function without it.

            def f(x):
                return torch.nn.functional.dropout(x)    # wrong
                return x * keep                          # keep: an argument
        """,
    ),
    row(
        "TG002",
        "nothing to import",
        """
        The target is FILE.py:name or package.module:name, a function of tensors, a module, or a class of modules, which
        `--init name=value` gives its arguments. Importing the file must not fail.
        """,
    ),
    row(
        "TG003",
        "an example that does not fit",
        """
        `--example` calls the target: each tensor by its name, dtype and lengths, other arguments as Python has them.

            --example "x=bf16[4,1024,4096] eps=1e-5"
            --example "x=f32[8,N:64]"    # the axis is called N
            --example "x=f32[8,N=64]"    # and has this length alone
        """,
    ),
    row(
        "TG004",
        "a function that cannot be traced",
        """
        The call fails, values decide what is computed or of which shape it is, or a module has hooks. A trace runs the
        function once without values: write `torch.where(condition, a, b)` in place of `if` on values.
        """,
    ),
)
