"""Spec -> what the template of an operator's pytest file sees."""

from __future__ import annotations

import builtins
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from .families.operands import operands_of
from .ir import Op, Result
from .literals import code_of, literal
from .modules import Module
from .names import shown
from .oracle import signature, torch_lines
from .promotion import is_float8
from .registration import LOWER, autocast_rule
from .resources import templates_dir
from .samples import (
    Shapes,
    dtype_cases,
    dtype_columns,
    other_values,
    range_of,
    refused_shapes,
    refused_values,
    required_values,
)
from .spec import BATCH, BOOLS, FLOAT8S, FLOATS, INTS, AxisTerm, Input, Spec
from .structure import Program

KINDS = ("flat", "tile", "registers", "loop", "pointers", "descriptors", "shares")
TEMPLATES = (
    "test.py.jinja",
    "test_gradient.jinja",
    "test_ahead.jinja",
    "test_vmap.jinja",
    "test_registered.jinja",
    "bench.py.jinja",
    "bench_products.py.jinja",
)
AUTOCAST_SAYS = {
    "": "Leaves it as it is.",
    "float32": "Computes in float32, with results in it.",
    "lower": "Multiplies in the dtype that it is for.",
}
_NO_NAMES = re.compile(r'"""[\s\S]*?"""|\{[%#][\s\S]*?[%#]\}|\{\{[\s\S]*?\}\}|#.*|f?"[^"\n]*"')


@cache
def template_names() -> frozenset[str]:
    """Every name of the emitted tests and benchmarks; an operator that has one goes by another there."""
    texts = [Path(templates_dir(), name).read_text(encoding="utf-8") for name in TEMPLATES]
    return frozenset(name for text in texts for name in re.findall(r"(?<![.\w])[A-Za-z]\w*", _NO_NAMES.sub(" ", text)))


def tests_view(
    spec: Spec, program: Program, kernel: Module, configs: Mapping[str, Any], gradient: Mapping[str, Any]
) -> dict[str, Any]:
    op = program.op
    shapes = Shapes(spec, program)
    knows_launches = bool(kernel.view.get("find"))
    inside = ["kernels"] if configs["search"] else []
    return {
        **oracle_view(spec, op),
        **gradient,
        "imports": imports(op, "configs", *gradient["modules"], *inside),
        "knows_launches": knows_launches,
        "search": configs["search"],
        "registers_searched": "registers" in kernel.traffic.kinds and configs["search"],
        "registers_chosen": "registers" in kernel.traffic.kinds and not configs["search"],
        **dtypes_view(op),
        **draws_view(spec, op, shapes),
        **shapes_view(op, shapes),
        **inputs_view(op),
        **layouts_view(program),
        **far_view(op, shapes),
        **{kind: kind in kernel.traffic.kinds for kind in KINDS},
        "splits": bool(kernel.view.get("partial")),
        **search_view(kernel),
        "params": if_any(other_values(op)),
        "strange_params": [{param.name: "1"} for param in op.params if param.kind != "enum"],
        "bad_params": if_any([{name: bad} for name, bad in refused_values(op)]),
        "tolerances": tolerances(program),
        **products_view(program, shapes),
        **registered_view(spec, program),
        "small_n": min((config.block_n for table in configs["tables"][:2] for config in table.configs), default=0),
    }


def registered_view(spec: Spec, program: Program) -> dict[str, Any]:
    """What tests of a registered operator have besides; those of vmap are of others, too."""
    op = program.op
    required = required_values(op)
    every = tuple(range(len(op.inputs)))
    rule = autocast_rule(program)
    floats = [tensor.type.dtypes for tensor in op.inputs if set(tensor.type.dtypes) & set(FLOATS)]
    halves = all(set(LOWER) <= set(dtypes) for dtypes in floats)
    cast = {"float32": ("half", "torch.float32") if halves else ("", ""), "lower": ("torch.float32", "half")}
    source, target = cast.get(rule, ("", ""))
    return {
        "registration": spec.register != "none",
        "is_traced": spec.register == "triton_op",
        "qualified": f"{spec.namespace}::{op.name}",
        "operator": f"torch.ops.{spec.namespace}.{op.name}",
        "rest": literal([required.get(param.name, param.default) for param in op.params]),
        "batched_sets": [every, *((place,) for place in every)] if len(every) > 1 else [every],
        "autocast_from": source,
        "autocast_to": target,
        "autocast_says": AUTOCAST_SAYS[rule if source else ""],
        "no_second": "once_differentiable" if spec.register == "none" else "no autograd formula",
    }


def products_view(program: Program, shapes: Shapes) -> dict[str, Any]:
    """What tests of matrix products have besides."""
    columns = dtype_columns(program.op)
    half = all("float16" in dtypes for dtypes in columns.values())
    several = len(columns) > 1
    halves, singles = (torch_dtypes((dtype,) * len(columns)) for dtype in ("float16", "float32"))
    bfloat16 = any("bfloat16" in dtypes for dtypes in columns.values())
    # Factors that are computed are rounded to what is multiplied; results of float8 are compared as exactly as others.
    rounded = program.contraction is not None and not program.contraction.is_plain and not gives_float8(program.op)
    return {
        "product": program.contraction is not None,
        "of_tensors": ", tensors" if rounded else "",
        "error_factor": 4 if program.contraction else 2,
        "tiled": shapes.tiled(),
        "shared": shapes.shared() if program.contraction else (),
        "pair_got": "got" if len(program.op.results) > 1 else "[got]",
        "pair_want": "want" if len(program.op.results) > 1 else "[want]",
        "half": f", {halves}" if columns and half else "",
        "single": f", {singles}" if columns and all("float32" in dtypes for dtypes in columns.values()) else "",
        "swapped": swapped(program),
        "without_bfloat16": ("torch.bfloat16 not in one" if several else "one != torch.bfloat16") if bfloat16 else "",
    }


def swapped(program: Program) -> str:
    """Tensors with the two that one descriptor copies in each other's place, so that both orders in memory are seen."""
    joined = operands_of(program.op, program.contraction).joined if program.contraction else None
    if joined is None:
        return ""
    other = {joined.first.name: joined.second.name, joined.second.name: joined.first.name}
    names = [tensor.name for tensor in program.op.inputs]
    return ", ".join(f"tensors[{names.index(other.get(name, name))}]" for name in names)


def search_view(kernel: Module) -> dict[str, Any]:
    """The kernels whose configurations @triton.autotune searches, by kind of launch."""
    kinds = {"flat": "flat", "strided": "tile", "registers": "registers", "loop": "loop"}
    found = {kinds[key]: kernel.view.get(key) for key in kinds}
    return {f"{kind}_kernel": view["name"] if view else "" for kind, view in found.items()}


def oracle_view(spec: Spec, op: Op) -> dict[str, Any]:
    names = [result.output.name for result in op.results]
    required = required_values(op)
    several = len(names) > 1
    lines = torch_lines(spec, op)
    return {
        "name": op.name,
        "call": local_name(op),
        "oracle": "the spec's reference" if spec.reference else "the spec's own math in torch",
        "special_oracle": "reference" if in_own_dtype(spec) else "oracle",
        "signature": signature(op),
        "lines": lines,
        "imports_math": bool(common_floats(op)) or any(re.search(r"\bmath\.", code_of(line)) for line in lines),
        "required": if_any(required),
        "star_params": ", **PARAMS" if required else "",
        "all_params": "(PARAMS | params)" if required else "params",
        "several_results": several,
        "result_names": ", ".join(names),
        "result_tuple": tuple_text(names) if several else names[0],
    }


def if_any(values: Sequence[object] | Mapping[str, object]) -> str:
    """Some values as Python writes them, nothing where there are none."""
    return literal(values) if values else ""


def in_own_dtype(spec: Spec) -> bool:
    """Whether results depend on how far the dtype reaches, so that float64 is no oracle for it."""
    texts = [spec.reference, *(statement.expression for statement in spec.compute)]
    return any("nan_to_num" in code_of(text) for text in texts)


def imports(op: Op, *modules: str) -> str:
    """The import of an operator and modules next to it, as isort has it."""
    if local_name(op) == op.name:
        return f"from . import {', '.join(sorted([*modules, op.name], key=shown))}"
    lines = [f"from . import {op.name} as {local_name(op)}"]
    lines += [f"from . import {', '.join(modules)}"] if modules else []
    return "\n".join(sorted(lines, key=shown))


def local_name(op: Op) -> str:
    """What a test calls the operator: its name, unless that means something else there, or a test to pytest."""
    name = shown(op.name)
    if name.startswith("test"):
        return f"op_{name}"
    return f"{name}_op" if name in template_names() or hasattr(builtins, name) else op.name


# Dtypes


def dtypes_view(op: Op) -> dict[str, Any]:
    columns = dtype_columns(op)
    several = len(columns) > 1
    argument = "dtypes" if several else "dtype"
    typed = f"{argument}: {'tuple[torch.dtype, ...]' if several else 'torch.dtype'}"
    floats = common_floats(op)
    float_results = all(result.dtype.kind == "float" for result in op.results)
    float8 = gives_float8(op)
    cases = dtype_cases(columns) if columns else []
    usual = next((case for case in cases if set(case) == {"float32"}), cases[0] if cases else ())
    return {
        "several_dtypes": several,
        "chosen": ", ".join(columns),
        "dtype": argument,
        "dtype_argument": typed if columns else "",
        "dtype_passed": f", {argument}" if columns else "",
        "dtype_default": f", {typed} = {torch_dtypes(usual)}" if columns else "",
        "dtypes": [torch_dtypes(case) for case in cases],
        "floats": [torch_dtypes((dtype,) * len(columns)) for dtype in floats],
        "float64": torch_dtypes(("float64",) * len(columns)) if "float64" in floats else "",
        "expected": [(result.output.name, result_dtype(op, result)) for result in op.results],
        "compares_errors": bool(floats) and float_results and len(op.results) == 1 and not float8,
        "float8_results": float8,
    }


def gives_float8(op: Op) -> bool:
    """Whether some result is of float8."""
    return any(is_float8(op, result.dtype) for result in op.results)


def common_floats(op: Op) -> list[str]:
    """The float dtypes that all inputs of more than one dtype may have."""
    columns = dtype_columns(op).values()
    return [dtype for dtype in FLOATS if columns and all(dtype in dtypes for dtypes in columns)]


def torch_dtypes(case: tuple[str, ...]) -> str:
    names = [f"torch.{dtype}" for dtype in case]
    return names[0] if len(names) == 1 else tuple_text(names)


def result_dtype(op: Op, result: Result) -> str:
    """The dtype of a result as torch would promote it, over the inputs' names."""
    inputs = {tensor.name for tensor in op.inputs}
    parts = [f"{leaf}.dtype" if leaf in inputs else f"torch.{leaf}" for leaf in result.dtype.of]
    text, *others = parts or ["torch.get_default_dtype()"]
    for other in others:
        text = f"torch.promote_types({text}, {other})"
    if result.dtype.rule == "int":
        return f"(torch.int64 if {text} == torch.bool else {text})"
    if result.dtype.rule:
        otherwise = "torch.get_default_dtype()" if result.dtype.rule == "float" else "torch.int64"
        return f"({text} if {text}.is_floating_point else {otherwise})"
    return text


def tolerances(program: Program) -> tuple[tuple[str, str], ...]:
    """Half precision is rounded once; sums in float32 lose a digit more than single operations.

    A result that is spelled float64 may be of float32 numbers.
    """
    single, double = ("1e-4", "1e-9") if program.over else ("1e-5", "1e-10")
    bytes_ = [tensor for tensor in program.op.inputs if set(tensor.type.dtypes) <= set(FLOAT8S)]
    if program.contraction and (program.op.precision == "tf32" or len(bytes_) > 1):
        single = "2e-3"  # Tensor cores add up products of float8 with 14 bits.
    if any(result.dtype.of == ("float64",) for result in program.op.results):
        double = single
    return (("float16", "2e-3"), ("bfloat16", "1.6e-2"), ("float32", single), ("float64", double))


# Inputs


def inputs_view(op: Op) -> dict[str, Any]:
    names = [tensor.name for tensor in op.inputs]
    batched = [n for n, tensor in enumerate(op.inputs) if BATCH in tensor.type.axes]
    optional = {tensor.name: tensor.default for tensor in op.inputs if tensor.default is not None}
    floating = [tensor.name for tensor in op.inputs if set(tensor.type.dtypes) & set(FLOATS)]
    read = [name for result in op.results for name in re.findall(r"(\w+)\.dtype", result_dtype(op, result))]
    return {
        "names": names,
        "tensors": ", ".join(names),
        "tuple": tuple_text(names),
        "unpacked": unpack(names, read),
        "several_tensors": len(names) > 1,
        "floating": "tensors" if floating == names else tuple_text(floating),
        "spoiled": "" if floating == names else unpack(names, floating),
        "batched": batched,
        "broadcasts": len(batched) > 1,
        "optional": if_any(optional),
        "absent": [(name,) for name in optional] + ([tuple(optional)] if len(optional) > 1 else []),
    }


def unpack(names: list[str], read: list[str]) -> str:
    """The left side that unpacks tensors, where any of them is read."""
    targets = [name if name in read else f"_{name.rstrip('_')}" for name in names]
    if not set(read) & set(names):
        return ""
    return f"({targets[0]},) = " if len(targets) == 1 else f"{', '.join(targets)} = "


def layouts_view(program: Program) -> dict[str, Any]:
    """Which layouts to try; what is constant along a reduced axis leaves nothing but rounding."""
    tensor = max(program.op.inputs, key=lambda tensor: len(tensor.type.axes))
    ends = [set(term.names) & set(program.over) for term in tensor.type.shape] or [set()]
    names = ["backwards", "scattered", "misaligned", "overlapping"]
    expands = {"same_rows": not ends[0], "same_columns": not ends[-1]}
    names += [name for name, fits in expands.items() if fits]
    scalars = any(not tensor.type.shape for tensor in program.op.inputs)
    return {
        **expands,
        "layouts": ", ".join(names),
        "unless_scalar": " if tensor.ndim else tensor" if scalars else "",
    }


def draws_view(spec: Spec, op: Op, shapes: Shapes) -> dict[str, Any]:
    dtypes = {dtype for tensor in op.inputs for dtype in tensor.type.dtypes}
    targets = ["*batch" if axis == BATCH else axis for axis in shapes.axes]
    return {
        "unpacks_shape": bool(targets),
        "axes": tuple_text(targets) if len(targets) == 1 else ", ".join(targets),
        "axes_text": ", ".join(shapes.axes),
        "draws": [(tensor.name, draw(tensor, spec, op)) for tensor in op.inputs],
        "draws_floats": bool(dtypes & {*FLOATS, *FLOAT8S}),
        "draws_ints": bool(dtypes & set(INTS)),
        "draws_unsigned": "uint8" in dtypes,
        "draws_bools": bool(dtypes & set(BOOLS)),
        "draws_only_bools": dtypes == set(BOOLS),
    }


def draw(tensor: Input, spec: Spec, op: Op) -> str:
    """The call that draws the values of an input."""
    sizes = dict(op.sizes)
    found = range_of(tensor, spec)
    bounds = [bound_text(bound, sizes) for bound in (found.low, found.high)] if found else []
    return f"draw({', '.join([input_shape(tensor, op), input_dtype(tensor, op), *bounds])})"


def bound_text(bound: float | str, lengths: Mapping[str, int | str]) -> str:
    """A bound of the values that an input is drawn from: a number, or the length of an axis."""
    return str(lengths.get(bound, bound)) if isinstance(bound, str) else literal(bound)


def input_shape(tensor: Input, op: Op) -> str:
    sizes = dict(op.sizes)
    parts = [
        " * ".join("*batch" if name == BATCH else str(sizes.get(name, name)) for name in term.names)
        for term in tensor.type.shape
    ]
    return tuple_text(parts)


def input_dtype(tensor: Input, op: Op) -> str:
    columns = list(dtype_columns(op))
    if len(tensor.type.dtypes) == 1:
        return f"torch.{tensor.type.dtypes[0]}"
    position = columns.index(tensor.type.variable or tensor.name)
    return "dtype" if len(columns) == 1 else f"dtypes[{position}]"


def shapes_view(op: Op, shapes: Shapes) -> dict[str, Any]:
    names = [tensor.name for tensor in op.inputs]
    return {
        "ragged": shapes.ragged,
        "shapes": shapes.small(),
        "large": shapes.large(),
        "largest": shapes.large()[0],
        "empty": shapes.empty(),
        "valueless": shapes.valueless(),
        "layout_shapes": list(dict.fromkeys([shapes.ragged, shapes.deep()])),
        "deep": shapes.deep(),
        "wide": shapes.wide(),
        "two_batches": shapes.of((3, 4), 2, 5),
        "special": shapes.special(),
        "bad_shapes": [(names.index(name), name, shape) for name, shape in refused_shapes(op, shapes)],
    }


def far_view(op: Op, shapes: Shapes) -> dict[str, Any]:
    """The input that the test of wide offsets spreads out: the one with most axes.

    The step is one that int32 still holds, so that three of them show an offset that is not widened.
    """
    tensor = max(op.inputs, key=lambda tensor: len(tensor.type.axes))
    outer, *_ = *tensor.type.shape, AxisTerm((), ())
    fixed = math.prod(size or 1 for size in outer.sizes)
    columns = dtype_columns(op)
    smallest = {name: min(dtypes, key=_BYTES.__getitem__) for name, dtypes in columns.items()}
    dtype = smallest.get(tensor.type.variable or tensor.name, tensor.type.dtypes[0])
    lengths = {axis: 37 if axis == shapes.long else 3 for axis in shapes.axes}
    free = [axis for axis in outer.names if axis in lengths]
    lengths |= dict.fromkeys(free, 1) | dict.fromkeys(free[:1], -(-3 // fixed))
    length = fixed * math.prod(lengths[axis] for axis in free)
    named = {axis: size for axis, size in lengths.items() if axis != BATCH}
    return {
        "far": bool(outer.names),
        "far_shape": tuple((lengths | shapes.fitting(named)).values()),
        "far_position": op.inputs.index(tensor),
        "far_dtype": f", {torch_dtypes(tuple(smallest.values()))}" if columns else "",
        "far_gigabytes": _BYTES[dtype] * (length - 1) + 2,
    }


_BYTES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "float32": 4,
    "int64": 8,
    "float64": 8,
}


def tuple_text(parts: list[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
