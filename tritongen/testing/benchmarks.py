"""Spec -> the view of an operator's benchmark."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol

from ..diagnostics.report import Mistake, Mistakes, listed
from ..emit.host_checks import tuple_text
from ..emit.imports import STANDARD, imports_of
from ..lang.formulas import python
from ..lang.ir import Op
from ..lang.names import in_string, shown
from ..lang.torch_names import CALLED_BY_PEERS
from ..lang.trees import parse, substitute
from ..passes.structure import Program
from ..spec.types import BATCH, FLOATS, Input, Peer, Spec
from .fitting import Fitting
from .oracle import expression, signature
from .samples import Shapes, dtype_columns, range_of, usual_params
from .tests import bound_text, operator_import, oracle_view

BACKED = "torch.nn.functional.scaled_dot_product_attention"  # torch has several implementations of it
ROW = 4096
WINDOW = 3
HEAD = 64  # of a dimension that is split into axes, such as heads of two halves
PREFERRED = ("bfloat16", "float32", "int64", "int32")


class Sizes(Protocol):
    """The lengths of axes in a benchmark, and the template by which it reports."""

    @property
    def template(self) -> str: ...

    @property
    def bounds(self) -> tuple[str, ...]:
        """The range that floats are drawn from; () leaves that to the harness."""

    @property
    def names(self) -> Mapping[str, str]:
        """How the benchmark spells the length of each axis."""

    @property
    def typical(self) -> Mapping[str, int]:
        """The lengths of axes that are usually much shorter than 4,096, such as heads and batches of attention."""

    def view(self) -> dict[str, Any]: ...


def bench_view(spec: Spec, op: Op, lengths: Sizes, harness: str) -> dict[str, Any]:
    """`harness` is the package that the harness is in."""
    view = oracle_view(spec, op)
    return {
        **{key: view[key] for key in ("name", "call", "oracle", "signature", "lines", "required")},
        **lengths.view(),
        **dtypes_view(op),
        "imports": f"from {harness} import benchmarking\n{operator_import(op)}",
        "standard": [line for line in imports_of("\n".join(view["lines"]), STANDARD) if line],
        "tensors": ", ".join(tensor.name for tensor in op.inputs),
        "drawn": tuple_text([draw(tensor, spec, op, lengths) for tensor in op.inputs]),
        "wrt": backward_places(spec, op),
        "has_backends": BACKED in spec.reference,
        "peers": [peer_view(peer, op) for peer in spec.peers],
        "modules": [module for module in CALLED_BY_PEERS if any(f"{module}." in text for text in peer_texts(spec))],
    }


def peer_texts(spec: Spec) -> list[str]:
    return [text for peer in spec.peers for text in (peer.torch, *(text for _, text in peer.given))]


def peer_view(peer: Peer, op: Op) -> dict[str, Any]:
    """The view of a peer: its function, and the one that computes the arguments `given`."""
    return {
        "name": peer.name,
        "label": shown(peer.name),
        "signature": signature(op, [name for name, _ in peer.given]),
        "line": expression(peer.torch, op),
        "compiled": peer.compiled,
        "function": peer.function,
        "given": tuple_text([expression(text, op) for _, text in peer.given]) if peer.given else "",
        "given_names": ", ".join(name for name, _ in peer.given),
    }


def backward_places(spec: Spec, op: Op) -> tuple[int, ...]:
    """The inputs whose gradients are measured; none if the backward writes over them and can run only once."""
    if spec.grad is None or spec.grad.write == "in_place":
        return ()
    names = [tensor.name for tensor in op.inputs]
    return tuple(map(names.index, spec.grad.wrt))


def lengths_of(spec: Spec, *by: str) -> dict[str, int]:
    """The lengths that [bench] gives axes, except the swept one. Raises Mistakes if that is not among `by`."""
    wrong = [name for name, several in spec.lengths if len(several) > 1 and name not in by]
    if wrong:
        goes = f"by {listed(by)}" if by else "by numbers of elements"
        message = f"this benchmark goes {goes}, and {wrong[0]} has one length there"
        raise Mistakes(Mistake("TG142", message, ("bench", wrong[0]), hint=f"write {wrong[0]} = NUMBER"))
    return {name: several[0] for name, several in spec.lengths if len(several) == 1}


def sizes_of(spec: Spec) -> tuple[int, ...]:
    """The lengths that [bench] sweeps; () if the harness chooses them."""
    return next((several for _, several in spec.lengths if len(several) > 1), ())


def windows(fit: Fitting) -> dict[str, int]:
    """The lengths of axes that make others shorter, as windows of convolutions do."""
    return dict.fromkeys(sorted(fit.shortening), WINDOW)


def computed_names(op: Op, names: Mapping[str, str]) -> dict[str, str]:
    """How a benchmark spells computed lengths: by lengths of other axes, and by the params of tests."""
    params = {name: repr(value) for name, value in usual_params(op).items()}
    found: dict[str, str] = {}
    for formula in (one for one in op.formulas if one.axis in op.computed):
        trees = {name: parse(text) for name, text in {**params, **names, **found}.items()}
        found[formula.axis] = ast.unparse(substitute(python(formula.node), trees))
    return found


class Lengths:
    """Sizes in GB/s: rows of 4,096, and as many of them as the number of elements asks for.

    An operator without rows has one axis, of all elements. One that reduces each row is measured
    over the length of rows as well.
    """

    template = "bench.py.jinja"
    bounds = ()
    typical: Mapping[str, int] = MappingProxyType({})

    def __init__(self, program: Program, shapes: Shapes, given: Mapping[str, int]) -> None:
        self.op = program.op
        given = {**windows(shapes.fit), **given}
        # Axes that are gathered from, but not iterated over, are as long as rows.
        visited = {*program.over, *(axis for result in self.op.results for axis in result.axes)}
        visited |= {axis for one in shapes.fit.slopes for axis in shapes.fit.growing(one) if one.axis in visited}
        free = [axis for axis in shapes.axes if axis not in given]
        self.axes = tuple(axis for axis in free if axis in visited)
        self.taken = tuple(axis for axis in free if axis not in visited)
        self.long = shapes.long if shapes.long in self.axes else "".join(self.axes[-1:])
        self.fixed = math.prod([*dict(self.op.sizes).values(), *(given[axis] for axis in given if axis in visited)])
        self.by_row = self.long in program.over and set(self.axes) > {*program.over} - {*given}
        self.names: dict[str, str] = {axis: str(size) for axis, size in (*self.op.sizes, *given.items())}
        self.names |= {axis: local(axis) for axis in free}
        if len(self.axes) == 1 and self.fixed == 1:
            self.names[self.axes[0]] = "elements"
        self.names |= computed_names(self.op, self.names)

    def view(self) -> dict[str, Any]:
        row = self.names.get(self.long, "")
        several = len(self.axes) > 1
        return {
            "sizes": (),
            "row": in_string(row) if self.by_row else "",
            "row_argument": f", {row}: int = {ROW}" if self.by_row else "",
            "in_rows": f" in rows of {row}" if several else "",
            "lengths": [*((self.names[axis], str(ROW)) for axis in self.taken), *self.assigned()],
        }

    def assigned(self) -> list[tuple[str, str]]:
        """The axes that are not arguments, with their lengths, from the rows outwards."""
        if len(self.axes) < 2:
            return [(self.names[axis], f"elements // {self.fixed}") for axis in self.axes if self.fixed > 1]
        outermost, *inner = [axis for axis in self.axes if axis != self.long]
        most = ROW if len(inner) == 1 else HEAD
        found = [] if self.by_row else [(self.names[self.long], str(HEAD if self.is_split() else ROW))]
        block = [str(self.fixed)] * (self.fixed > 1) + [self.names[self.long]]
        for axis in reversed(inner):
            found.append((self.names[axis], f"min(elements // {product(block)}, {most})"))
            block.append(self.names[axis])
        return [*found, (self.names[outermost], f"elements // {product(block)}")]

    def is_split(self) -> bool:
        """Whether the axis of rows shares a dimension with other axes."""
        terms = [term for tensor in self.op.inputs for term in tensor.type.shape]
        return any(self.long in term.names and len(term.names) > 1 for term in terms)


def local(axis: str) -> str:
    return "batch" if axis == BATCH else axis


def product(factors: list[str]) -> str:
    return f"({' * '.join(factors)})" if len(factors) > 1 else factors[0]


def draw(tensor: Input, spec: Spec, op: Op, lengths: Sizes) -> str:
    names = lengths.names
    shape = [" * ".join(names[axis] for axis in term.names) for term in tensor.type.shape]
    bounds = list(lengths.bounds) if set(tensor.type.dtypes) & set(FLOATS) else []
    if found := dict(spec.drawn).get(tensor.name) or range_of(tensor, spec):
        bounds = [bound_text(bound, names) for bound in (found.low, found.high)]
    return f"benchmarking.draw({', '.join([tuple_text(shape), dtype_of(tensor, op), *bounds])})"


# Dtypes: one is chosen, and the inputs that may have it do.


def dtypes_view(op: Op) -> dict[str, Any]:
    dtypes = chosen_dtypes(op)
    default = preferred(dtypes) if dtypes else ""
    return {
        "dtypes": " ".join(dtypes),
        "dtype_argument": f", dtype: torch.dtype = torch.{default}" if dtypes else "",
    }


def chosen_dtypes(op: Op) -> list[str]:
    """The dtypes common to all inputs that admit a float dtype; without such inputs, to all inputs."""
    columns = [*dtype_columns(op).values()]
    columns = [column for column in columns if set(column) & set(FLOATS)] or columns
    first = columns[0] if columns else ()
    return [dtype for dtype in first if all(dtype in column for column in columns)] or [*first]


def dtype_of(tensor: Input, op: Op) -> str:
    if len(tensor.type.dtypes) == 1:
        return f"torch.{tensor.type.dtypes[0]}"
    follows = set(chosen_dtypes(op)) <= set(tensor.type.dtypes)
    return "dtype" if follows else f"torch.{preferred(tensor.type.dtypes)}"


def preferred(dtypes: tuple[str, ...] | list[str]) -> str:
    return next((dtype for dtype in PREFERRED if dtype in dtypes), dtypes[0])
