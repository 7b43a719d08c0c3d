"""The README of a runtime, on the modules that this tree has, and no others."""

from __future__ import annotations

import ast
import os
import textwrap
from collections.abc import Iterator, Mapping
from string import Template

from ..lang.trees import parsed_module
from ..resources import read_text, templates_dir

_WIDTH = 120
# Modules in reading order; others follow. `_FAMILIES` launch the kernels of a family each.
_FAMILIES = ("elementwise", "rowwise", "columns", "contraction", "streaming", "scatter_sums", "gemm", "split_gemm")
_FIRST = ("launch", "tensors", "autograd")
_RULES = ("heuristics", "matmul_heuristics", "streaming_heuristics", "search")
_LOOKUP = """\
`op.py` checks the arguments, and asks `launch.lookup` for the launch of an earlier call of the same shapes,
strides, dtypes and device. If there is one, it is repeated with this call's tensors, and that is all."""
_FAMILY = """\
Otherwise `op.py` allocates results and passes kernels, tensors and tables of configurations to {}: it chooses a
kernel, and folds dimensions as far as strides allow."""
_RULE = """\
A configuration comes from the operator's `configs.py`, by the rules of {}, without a search unless the spec asks
for one."""
_LAUNCH = "`launch.run` launches the kernel, and caches the launch under the key of the call."
_GRADIENT = """\
Where a gradient is recorded, `autograd.py` has the call in an `autograd.Function`, whose backward goes the
same way."""
# The steps of a call, each listed if the runtime has one of its modules.
_STEPS = (
    (("launch",), _LOOKUP),
    (_FAMILIES, _FAMILY),
    (_RULES, _RULE),
    (("launch",), _LAUNCH),
    (("autograd",), _GRADIENT),
)


def page(modules: Mapping[str, str]) -> str:
    """The text of the README; `modules` has the texts of the runtime's modules by name."""
    steps = list(_steps(modules))
    numbered = [_wrapped(f"{n}. ", text) for n, text in enumerate(steps, 1)]
    order = [name for name in (*_FIRST, *_FAMILIES, *_RULES) if name in modules]
    order += sorted(name for name in modules if name not in (*order, "__init__"))
    listed = [_wrapped("- ", f"`{name}.py`: {_summary(modules[name])}") for name in order]
    return Template(template()).substitute(steps="\n".join(numbered), modules="\n".join(listed))


def template() -> str:
    return read_text(os.path.join(templates_dir(), "readme.md.template"))


def _steps(modules: Mapping[str, str]) -> Iterator[str]:
    for needed, text in _STEPS:
        found = [f"`{name}.py`" for name in needed if name in modules]
        if found:
            either = [", ".join(found[:-1]), found[-1]] if len(found) > 1 else found
            yield " ".join(text.split()).format(" or ".join(either))


def _summary(text: str) -> str:
    """The first paragraph of a module's docstring."""
    docstring = ast.get_docstring(parsed_module(text)) or ""
    return " ".join(docstring.split("\n\n")[0].split())


def _wrapped(mark: str, text: str) -> str:
    return textwrap.fill(mark + text, _WIDTH, subsequent_indent=" " * len(mark), break_long_words=False)
