"""What Gluon kernels of all families share: device functions that take what they read, and warps that run these."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable
from dataclasses import replace

from ..lang.trees import walk
from ..lowering.views import Argument, Kernel
from ..nest.ir import (
    Do,
    For,
    Let,
    Line,
    Nest,
    free_names,
    lines_of,
    names_of,
    statements_of,
    with_values,
    without_dead_code,
)
from ..nest.values import Expr, Term, V, runtime, tl

# What Gluon has of what kernels call of Triton's language.
SHARED = frozenset(
    "abs arange cdiv ceil cos exp exp2 floor float32 full int32 int64 log log2 maximum minimum rsqrt sin sqrt store sum"
    " where".split()
)
BLOCKS = ("BLOCK_M: gl.constexpr", "BLOCK_N: gl.constexpr")
FENCE = Do(runtime.fence_async_shared(), comment="Make the initialised barriers visible to TMA and all warps.")
STORED = Do(V.tma.method("store_wait", 0), comment="Shared memory must outlive the stores that read it.")
TILES = runtime.range(tl.program_id(0), "n_tiles", tl.num_programs(0))  # of a persistent program
# Of groups of warps but the first: how many warps, and registers of their threads.
_WARPS = {3: ([4, 1], [240, 24]), 4: ([4, 4, 1], [160, 160, 24])}


def function(name: str, doc: str, body: Nest, arguments: Iterable[str]) -> Kernel:
    """A device function that takes those of some arguments which its body reads."""
    body = without_dead_code(body)
    body = _where_read(body, {name for one in statements_of(body) for name in one.reads})
    known, free = (Argument(one, "") for one in arguments), free_names(body)
    return Kernel(name, doc, tuple(one for one in known if one.name in free), (), body=body, language="gl")


def kernel(name: str, doc: str, body: Nest, arguments: Iterable[str], fixed: tuple[str, ...] = ()) -> Kernel:
    """A kernel that takes some arguments, as the host passes them."""
    known = tuple(Argument(one, "") for one in arguments)
    return Kernel(f"{name}_gluon_kernel", doc, known, (), body=without_dead_code(body), fixed=fixed, language="gl")


def _where_read(nest: Nest, read: Container[str]) -> Nest:
    """A nest in which names that are unpacked and not read begin with an underscore."""
    found = []
    for one in nest:
        if isinstance(one, Let) and len(one.targets) > 1:
            one = replace(one, name=", ".join(name if name in read else f"_{name}" for name in one.targets))
        found.append(replace(one, body=_where_read(one.body, read)) if isinstance(one, For) else one)
    return tuple(found)


def called(one: Kernel, **given: Term) -> Expr:
    """A call of a device function, of the names of its arguments where nothing else is given."""
    return runtime[one.name](*passed(one, **given))


def passed(one: Kernel, **given: Term) -> tuple[Term, ...]:
    return tuple(given.get(name, name) for name in one.names)


def specialised(*groups: tuple[Term, Term]) -> Do:
    """Runs functions side by side, each by a group of warps: those that compute have 4, and one warp loads."""
    comment = "Warps of the groups behind the first, and the registers of their threads."
    return Do(tl.warp_specialize([*groups], *_WARPS[len(groups)]), comment=comment)


def calls_only(lines: Iterable[Line], names: Container[str]) -> bool:
    """Whether some lines call no more of Triton's language than some names."""
    every = (node for line in lines_of(lines) for value in line.values for node in walk(value.tree))
    return all(node.attr in names for node in every if isinstance(node, ast.Attribute) and Expr(node.value) == V.tl)


def names_in(lines: Iterable[Line], names: Iterable[str]) -> list[str]:
    """Those of some names that are in some lines."""
    known = names_of(lines)
    return [name for name in names if name in known]


def listed(names: Iterable[str]) -> str:
    """Names in front of other arguments."""
    return "".join(f"{name}, " for name in names)


def in_gluon(lines: Iterable[Line]) -> list[Line]:
    return [*with_values((*lines,), gluon_value)]


def gluon_value(value: Expr) -> Expr:
    return value.with_names({"tl": V.gl})
