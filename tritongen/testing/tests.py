"""Spec -> the view of an operator's pytest file: the test classes that it inherits, and its declarations."""

from __future__ import annotations

import ast
import builtins
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..emit.host_checks import CLASS_NAMES, tuple_text
from ..emit.imports import RUNTIME_FOLDER, TESTING_FOLDER
from ..emit.registration import LOWER
from ..lang.formulas import python, wanted_of
from ..lang.ir import Cast, Op, Reduce, Result, Scan
from ..lang.literals import code_of, literal
from ..lang.names import shown
from ..lang.trees import parse, substitute
from ..lowering.lower import compute_of
from ..lowering.tile import needed
from ..passes.structure import Program
from ..resources import templates_dir
from ..spec.types import BATCH, FLOATS, AxisTerm, Input, Spec
from .masked import masks_by_number, without_masked_rows
from .oracle import original_lines, own_lines, signature, torch_lines
from .samples import ALIGNED, RAGGED, Shapes, other_values, range_of, refused_shapes, refused_values, required_values

TEMPLATES = (
    "test.py.jinja",
    "test_class.jinja",
    "bench.py.jinja",
    "bench_products.py.jinja",
    "bench_streams.py.jinja",
    "bench_caches.py.jinja",
)
SHIFTS = "(500.0, -500.0)"  # how far values are moved where math compares them
_NO_NAMES = re.compile(r'"""[\s\S]*?"""|\{[%#][\s\S]*?[%#]\}|\{\{[\s\S]*?\}\}|#.*|f?"[^"\n]*"')


@dataclass(frozen=True, slots=True)
class FamilyTests:
    """A family's part of an operator's tests: their class of the harness, their declarations, by names of the harness,
    and their shapes.
    """

    base: str
    shapes: Shapes
    declared: Mapping[str, str] = field(default_factory=dict)
    streams: bool = False  # an axis is streamed, so that a softmax may be over no keys


@dataclass(frozen=True, slots=True)
class GradientTests:
    """The classes that tests of a gradient inherit, and their declarations, by names of the harness."""

    bases: tuple[str, ...] = ()
    declared: Mapping[str, str] = field(default_factory=dict)


@cache
def template_names() -> frozenset[str]:
    """Every name of the emitted tests and benchmarks; an operator with one of them has another name there."""
    texts = [Path(templates_dir(), name).read_text(encoding="utf-8") for name in TEMPLATES]
    found = (name for text in texts for name in re.findall(r"(?<![.\w])[A-Za-z]\w*", _NO_NAMES.sub(" ", text)))
    return frozenset(found) | {"tensors", "kernels", "lengths", "original", "testing"}


def declared_together(*declared: Mapping[str, str]) -> dict[str, str]:
    """The declarations of several steps combined; `narrowest` is the largest of theirs."""
    found = {name: text for one in declared for name, text in one.items()}
    widths = [int(one["narrowest"]) for one in declared if one.get("narrowest")]
    return found | ({"narrowest": str(max(widths))} if widths else {})


def tests_view(
    spec: Spec, program: Program, family: FamilyTests, gradient: GradientTests, searches: bool, autocast: str
) -> dict[str, Any]:
    """The view of an operator's tests. The names in `declared` and `shapes` are names of the harness."""
    op, shapes = program.op, family.shapes
    oracles = other_oracles(spec, op, family)
    dtypes = [result_dtype(op, result) for result in op.results]
    together = declared_together(family.declared, gradient.declared)
    stores_between = bool(together.pop("stores_between", ""))
    declared = {
        "searched": "kernels" if searches else "",
        **inputs_view(spec, op, shapes),
        "reduced": tuple_of(axis for axis in op.axes if axis in reduced_axes(program)),
        **params_view(op, shapes),
        **rounding_view(spec, op),
        **together,
        **{name: f"staticmethod({name})" for name in oracles},
        **registered_view(spec, op, autocast),
    }
    others = {
        "OwnMathTests": bool(oracles.keys() - {"original"}),
        "OriginalTests": bool(spec.original),
        "RegisteredTests": spec.register != "none",
        "Float8Tests": any("float8" in one for one in (*dtypes, *(d for t in op.inputs for d in t.type.dtypes))),
        "SearchedTests": searches,
        "TiesTests": any(one.dtype.kind in ("int", "bool") for one in op.results) and reads_floats(op),
        "StreamsBetween" if family.base == "StreamingTests" else "StoresBetween": stores_between,
    }
    bases = [*kernel_tests(family, gradient), *(name for name, is_one in others.items() if is_one)]
    return {
        **oracle_view(spec, op),
        "test_class": f"Test{''.join(word[:1].upper() + word[1:] for word in shown(op.name).split('_'))}",
        "bases": [f"testing.{name}" for name in bases],
        "axes": shapes.axes,
        "declared": stated(declared),
        "other_oracles": oracles,
        "shapes": stated(shapes_view(op, shapes)),
        "tensors": ", ".join(f"{tensor.name}: torch.Tensor" for tensor in op.inputs),
        "result_dtypes": tuple_text(dtypes),
    }


def stated(declarations: Mapping[str, str]) -> dict[str, str]:
    """The declarations that are not empty; the harness has defaults for the others."""
    return {name: text for name, text in declarations.items() if text}


def kernel_tests(family: FamilyTests, gradient: GradientTests) -> list[str]:
    """The classes of the forward, and those of the backward that the forward's class does not include."""
    has = ["MapKernels"] if family.base == "ElementwiseTests" else []
    has = ["MapKernels", "RowKernels"] if family.base.endswith(("RowwiseTests", "StepsTests")) else has
    return [family.base, *(base for base in gradient.bases or ("ForwardTests",) if base not in has)]


def sibling_imports(op: Op, home: str) -> Mapping[str, str]:
    """The imports of a test file in addition to the standard library and packages; `home` has the runtime."""
    shared = {
        "tensors": f"from {home}{RUNTIME_FOLDER} import tensors",
        "testing": f"from {home} import {TESTING_FOLDER} as testing",
        local_name(op): operator_import(op),
    }
    return shared | {each: f"from . import {each}" for each in ("configs", "kernels")}


# Declarations


def inputs_view(spec: Spec, op: Op, shapes: Shapes) -> dict[str, str]:
    names = [tensor.name for tensor in op.inputs]
    optional = [tensor.name for tensor in op.inputs if tensor.default is not None]
    batched = [place for place, tensor in enumerate(op.inputs) if BATCH in tensor.type.axes]
    return {
        "inputs": tuple_text([declared_input(tensor, spec, shapes.summed(tensor)) for tensor in op.inputs]),
        "finite": tuple_of(decays(op)),
        "axes": tuple_of(shapes.axes),
        "sizes: ClassVar": text_of(dict(op.sizes)),
        "derived: ClassVar": derived_text(op, shapes),
        "absent": text_of((*((name,) for name in optional), *([tuple(optional)] if len(optional) > 1 else []))),
        "batched": text_of(tuple(batched) if len(batched) > 1 else ()),
        "indices": tuple_of(name for name, tensor in zip(names, op.inputs, strict=True) if is_index(tensor, spec)),
    }


def reduced_axes(program: Program) -> frozenset[str]:
    """The axes that some value is reduced over, also after the program's own reduction."""
    return frozenset(program.over).union(*(node.over for node in program.op.nodes if isinstance(node, Reduce)))


def derived_text(op: Op, shapes: Shapes) -> str:
    """The computed lengths of axes of inputs, and of axes that bound values, as functions of other lengths."""
    found: list[str] = []
    for formula in wanted_of(shapes.fit.drawn, (one for one in op.formulas if one.axis in op.computed)):
        names = {axis: parse(f"lengths[{axis!r}]") for axis in formula.reads}
        given = {name: ast.Constant(shapes.fit.params[name]) for name in formula.params}
        tree = substitute(python(formula.node), {**names, **given})
        found.append(f"{formula.axis!r}: lambda lengths: {ast.unparse(tree)}")
    return f"{{{', '.join(found)}}}" if found else ""


def declared_input(tensor: Input, spec: Spec, summed: str) -> str:
    axes = tuple_of(" * ".join(term.names) for term in tensor.type.shape)
    found = range_of(tensor, spec)
    options = {
        "group": tensor.type.variable or None,
        "low": found.low if found else None,
        "high": found.high if found else None,
        "default": tensor.default,
        "summed": summed or None,
    }
    said = [f"{name}={literal(value)}" for name, value in options.items() if value is not None]
    return f"testing.Input({', '.join([repr(tensor.name), axes or '()', dtypes_text(tensor.type.dtypes), *said])})"


def is_index(tensor: Input, spec: Spec) -> bool:
    """Whether the values of an input are positions of an axis."""
    found = range_of(tensor, spec)
    is_integer = not tensor.type.dtypes[0].startswith(("float", "bfloat"))
    return found is not None and isinstance(found.high, str) and is_integer


def dtypes_text(dtypes: tuple[str, ...]) -> str:
    return CLASS_NAMES.get(dtypes) or tuple_text([f"torch.{dtype}" for dtype in dtypes])


def params_view(op: Op, shapes: Shapes) -> dict[str, str]:
    return {
        "params: ClassVar": text_of(required_values(op)),
        "other_params": text_of(tuple(other_values(op, shapes))),
        "strange_params": text_of(tuple({param.name: "1"} for param in op.params if param.kind != "enum")),
        "bad_params": text_of(tuple({name: bad} for name, bad in refused_values(op))),
    }


def decays(op: Op) -> list[str]:
    """The inputs that decays of recurrences depend on: kernels multiply decays first, so that an infinite one may meet
    a 0 that it does not meet element by element.
    """
    found = [node.decay for node in op.nodes if isinstance(node, Scan) and node.decay]
    names = {name for node in found for name in node.references}
    reads = [value.node.reads for value in needed(op.values, names)] + [node.reads for node in found]
    return sorted(frozenset[str]().union(*reads), key=shown)


def registered_view(spec: Spec, op: Op, autocast: str) -> dict[str, str]:
    """The further declarations of a registered operator's tests."""
    if spec.register == "none":
        return {}
    required = required_values(op)
    floats = [tensor.type.dtypes for tensor in op.inputs if set(tensor.type.dtypes) & set(FLOATS)]
    halves = all(set(LOWER) <= set(dtypes) for dtypes in floats)
    return {
        "registered": f"torch.ops.{spec.namespace}.{op.name}",
        "rest": text_of(tuple(required.get(param.name, param.default) for param in op.params)),
        "is_traced": "True" if spec.register == "triton_op" else "",
        "autocast": repr(autocast) if autocast == "lower" or (autocast == "float32" and halves) else "",
    }


def shapes_view(op: Op, shapes: Shapes) -> dict[str, str]:
    """The shapes of the harness, each a tuple of lengths or a tuple of such."""
    batched = sum(BATCH in tensor.type.axes for tensor in op.inputs) > 1
    found: dict[str, object] = {
        "ragged": shapes.ragged,
        "shapes": tuple(shapes.small()),
        "large": tuple(shapes.large()),
        "empty": tuple(shapes.empty()),
        "valueless": tuple(shapes.valueless()),
        "deep": shapes.deep(),
        "two_batches": shapes.of((3, 4), 2, RAGGED) if batched else (),
        "wide": shapes.wide(),
        "dense": shapes.dense(),
        "special": shapes.special(),
        "tiled": tuple(shapes.tiled()),
        "shared": shapes.shared(),
        "too_long": shapes.too_long(),
        "wrong_shapes": tuple(refused_shapes(op, shapes)),
        "far": far(op, shapes) or (),
    }
    return {name: text_of(value) for name, value in found.items()}


def far(op: Op, shapes: Shapes) -> tuple[str, tuple[int, ...]] | None:
    """The input that the test of wide offsets spreads out, the one with most axes, and the lengths of axes for it.

    The step is one that int32 still holds, so that three of them show an offset that is not widened.
    """
    tensor = max(op.inputs, key=lambda tensor: len(tensor.type.axes))
    outer, *_ = *tensor.type.shape, AxisTerm((), ())
    if not outer.names:
        return None
    if outer.names == (BATCH,):
        return tensor.name, shapes.of(shapes.spread, 2, ALIGNED)
    fixed = math.prod(size or 1 for size in outer.sizes)
    lengths = {axis: RAGGED if axis == shapes.long else 3 for axis in shapes.axes}
    free = [axis for axis in outer.names if axis in lengths]
    lengths |= dict.fromkeys(free, 1) | dict.fromkeys(free[:1], -(-3 // fixed))
    named = {axis: size for axis, size in lengths.items() if axis != BATCH}
    return tensor.name, tuple((lengths | shapes.fitting(named)).values())


def text_of(value: Any) -> str:
    """How a declaration is spelled; nothing for an empty one."""
    return literal(value) if value else ""


def tuple_of(names: Iterable[str]) -> str:
    found = [repr(name) for name in names]
    return tuple_text(found) if found else ""


# The oracle


def oracle_view(spec: Spec, op: Op) -> dict[str, Any]:
    required = required_values(op)
    lines = torch_lines(spec, op)
    return {
        "name": op.name,
        "call": local_name(op),
        "oracle": "the spec's reference" if spec.reference else "the spec's own math in torch",
        "signature": signature(op),
        "lines": lines,
        "required": literal(required) if required else "",
    }


def other_oracles(spec: Spec, op: Op, family: FamilyTests) -> dict[str, tuple[str, tuple[str, ...]]]:
    """The oracles in addition to the reference, as for rows without keys: the docstring and the lines of each."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    if spec.reference and (family.streams or "scaled_dot_product_attention" in code_of(spec.reference)):
        found["own_math"] = "The spec's own math in torch.", own_lines(spec, op)
    if spec.original:
        found["original"] = "What the spec says again, where it is installed.", original_lines(spec.original, op)
    if family.streams and masks_by_number(op):
        about = "The spec's own math in torch, NaN in rows whose scores are all masked."
        found["masked_math"] = about, own_lines(without_masked_rows(spec), op)
    return found


def rounding_view(spec: Spec, op: Op) -> dict[str, str]:
    """The declarations about values that differ from float64."""
    found = {
        "own_range": in_own_dtype(spec),
        "rounds_between": rounds_between(op),
        "rounds_to_float32": rounds_to_float32(op),
    }
    return {name: "True" for name, is_so in found.items() if is_so}


def in_own_dtype(spec: Spec) -> bool:
    """Whether results depend on the range of the dtype, so that float64 is no oracle for it."""
    texts = [spec.reference, *(statement.expression for statement in spec.compute)]
    return any("nan_to_num" in code_of(text) for text in texts)


def rounds_between(op: Op) -> bool:
    """Whether a value is cast to the dtype of an input, which in the oracle is float64."""
    casts = [node for node in op.nodes if isinstance(node, Cast)]
    return any(set(cast.dtype.of) & {tensor.name for tensor in op.inputs} for cast in casts)


def reads_floats(op: Op) -> bool:
    return any({*tensor.type.dtypes} & {*FLOATS} for tensor in op.inputs)


def rounds_to_float32(op: Op) -> bool:
    """Whether an intermediate is cast to float32, in which torch continues, whatever the inputs are."""
    results = {result.output.name for result in op.results}
    ends = [value.node for value in op.values if value.name in results]
    casts = [node for node in op.nodes if isinstance(node, Cast) and not any(node is end for end in ends)]
    return any(cast.dtype.of == ("float32",) and cast.arg.dtype.kind == "float" for cast in casts)


def compares_values(spec: Spec) -> bool:
    """Whether the largest is looked for, or its distances have exponentials: it may be far above or below 0."""
    math = " ".join(code_of(statement.expression) for statement in spec.compute)
    return bool(re.search(r"softmax\(|logsumexp\(|\barg(max|min)\(|\bmax\(.*exp\(", math))


def operator_import(op: Op) -> str:
    return f"from . import {op.name}" + ("" if local_name(op) == op.name else f" as {local_name(op)}")


def local_name(op: Op) -> str:
    """The operator's name in a test: its own, unless that means something else there, or a test to pytest."""
    name = shown(op.name)
    if name.startswith("test"):
        return f"op_{name}"
    return f"{name}_op" if name in template_names() or hasattr(builtins, name) else op.name


# Dtypes


def result_dtype(op: Op, result: Result) -> str:
    """The dtype of a result as torch would promote it, over the inputs' names."""
    inputs = {tensor.name for tensor in op.inputs}
    leaf_texts = [f"{leaf}.dtype" if leaf in inputs else f"torch.{leaf}" for leaf in result.dtype.of]
    text, *others = leaf_texts or ["torch.get_default_dtype()"]
    for other in others:
        text = f"torch.promote_types({text}, {other})"
    if result.dtype.rule == "int":
        return f"(torch.int64 if {text} == torch.bool else {text})"
    if result.dtype.rule:
        otherwise = "torch.get_default_dtype()" if result.dtype.rule == "float" else "torch.int64"
        return f"({text} if {text}.is_floating_point else {otherwise})"
    return text


def tolerances(op: Op, usual: str = "SUMS", others: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """The tolerances that differ from the `usual` ones. A float64 result may have float32 values, unless all is
    computed in float64.
    """
    if any(result.dtype.of == ("float64",) for result in op.results) and not compute_of(op).in_float64:
        others = {**others, "float64": others.get("float32", {"SUMS": "1e-4", "TOLERANCES": "1e-5"}[usual])}
    entries = ", ".join(f"torch.{dtype}: {tolerance}" for dtype, tolerance in others.items())
    return {"tolerances": f"testing.{usual} | {{{entries}}}" if others else ""}


def bound_text(bound: float | str, lengths: Mapping[str, int | str]) -> str:
    """A bound of the values that an input is drawn from: a number, or the length of an axis."""
    return str(lengths.get(bound, bound)) if isinstance(bound, str) else literal(bound)
